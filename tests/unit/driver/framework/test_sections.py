# SPDX-License-Identifier: Apache-2.0
"""What may stand in a section: schemas of declared keys, dynamic values, and drivers that are not installed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import voluptuous as v

from nodepool.config.objects import Config
from nodepool.driver.framework.key_schema import dynamic_value
from nodepool.driver.framework.sections import UnavailableProviderConfig


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        *(("{request.id}-{request.tenant_name}", "200-7-t"), ("{request.relative_priority}", "None"), (7, "7")),
        *((template, None) for template in ("{request.nope}", "{other}", "{", "{request.zk}")),
    ],
)
def test_dynamic_value(template: Any, wanted: str | None) -> None:
    """L-15: a bad format skips that value only; nothing but the documented fields can be reached."""
    request: Any = SimpleNamespace(id="200-7", node_types=["small"], requestor="zuul", tenant_name="t", event_id="e")
    assert dynamic_value(template, request) == wanted


def test_driver_that_is_not_installed() -> None:
    """G-4: its section offers nothing; the common keys are checked; equal sections are equal."""
    pool = {"name": "p", "labels": [{"name": "l"}], "size": 3}
    section = {"name": "a", "driver": "x", "cloud": "c", "pools": [pool]}
    provider = UnavailableProviderConfig(section, "why")
    provider.load(Config())
    assert (provider.name, provider.driver.name, provider.reason) == ("a", "x", "why")
    assert (provider.pools, provider.getSupportedLabels("p"), provider.manage_images) == ({}, set(), False)
    schema = provider.getSchema()
    schema(section)
    for wrong in ({"max-concurrency": "x"}, {"pools": [{"max-servers": 1}]}):
        with pytest.raises(v.Invalid):
            schema({**section, **wrong})
    assert UnavailableProviderConfig(section, "why") == UnavailableProviderConfig(dict(section), "why")
    assert UnavailableProviderConfig(section, "why") != UnavailableProviderConfig({**section, "cloud": "d"}, "why")
