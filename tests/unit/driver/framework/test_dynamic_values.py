# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.key_schema`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.framework.key_schema import dynamic_value

REQUEST: Any = SimpleNamespace(id="200-7", node_types=["small"], requestor="zuul", tenant_name="t", event_id="e")


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{request.id}-{request.tenant_name}", "200-7-t"),
        ("{request.relative_priority}", "None"),
        (7, "7"),
        ("{request.nope}", None),
        ("{other}", None),
        ("{", None),
        ("{request.zk}", None),
    ],
)
def test_dynamic_value(template: Any, wanted: str | None) -> None:
    """L-15: a bad format skips that value only; nothing but the documented fields can be reached."""
    assert dynamic_value(template, REQUEST) == wanted
