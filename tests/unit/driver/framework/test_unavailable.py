# SPDX-License-Identifier: Apache-2.0
"""A section whose driver is not installed."""

from __future__ import annotations

import pytest
import voluptuous as v

from nodepool.config.objects import Config
from nodepool.driver.framework.sections import UnavailableProviderConfig

SECTION = {"name": "a", "driver": "x", "cloud": "c", "pools": [{"name": "p", "labels": [{"name": "l"}], "size": 3}]}


def test_offers_nothing() -> None:
    provider = UnavailableProviderConfig(SECTION, "why")
    provider.load(Config())
    assert (provider.name, provider.driver.name, provider.reason) == ("a", "x", "why")
    assert (provider.pools, provider.getSupportedLabels("p"), provider.manage_images) == ({}, set(), False)


def test_schema_knows_the_common_keys() -> None:
    schema = UnavailableProviderConfig(SECTION, "why").getSchema()
    schema(SECTION)
    with pytest.raises(v.Invalid):
        schema({**SECTION, "max-concurrency": "x"})
    with pytest.raises(v.Invalid):
        schema({**SECTION, "pools": [{"max-servers": 1}]})


def test_equal_sections_are_equal() -> None:
    """G-4."""
    assert UnavailableProviderConfig(SECTION, "why") == UnavailableProviderConfig(dict(SECTION), "why")
    assert UnavailableProviderConfig(SECTION, "why") != UnavailableProviderConfig({**SECTION, "cloud": "d"}, "why")
