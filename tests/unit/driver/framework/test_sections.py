# SPDX-License-Identifier: Apache-2.0
"""What may stand in a section: schemas of declared keys, dynamic values, and drivers that are not installed."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

from nodepool.driver.config import dynamic_values
from tests.support.tables import rows


@rows(__file__, "dynamic_values")
def test_dynamic_value(template: Any, wanted: str | None) -> None:
    """L-15: a bad format skips that value only; nothing but the documented fields can be reached."""
    request: Any = SimpleNamespace(id="200-7", node_types=["small"], requestor="zuul", tenant_name="t", event_id="e")
    label: Any = SimpleNamespace(name="small", dynamic_tags={"key": template})
    found = dynamic_values(label, "dynamic-tags", request, logging.getLogger("test"))
    assert found == ({} if wanted is None else {"key": wanted})
