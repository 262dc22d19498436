# SPDX-License-Identifier: Apache-2.0
"""The provider section of static hosts (reference/configuration 8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import voluptuous as v

from nodepool.config.objects import Config
from nodepool.driver.static.config import StaticProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.plan.static import HostId, HostSpec
from tests.support.tables import driver_table
from tests.unit.driver.static.conftest import load

ID = HostId("127.0.0.1", "zuul", 22)
DEFAULT = HostSpec(ID, "main", ("small",), connection_type="ssh", check=True, keys_wanted=True)


@pytest.mark.parametrize(("keys", "expected"), driver_table("static", "keys"))
def test_keys(keys: dict[str, Any], expected: dict[str, Any]) -> None:
    """reference/configuration 8, S-6: only name and labels are required; of the pool come attributes."""
    (host,) = load(keys, pool={"node-attributes": {"a": "b"}}, quarantine_after=3).hosts().values()
    wanted: dict[str, Any] = {"attributes": {"a": "b"}, "quarantine_after": 3}
    wanted |= {name: tuple(value) if isinstance(value, list) else value for name, value in expected.items()}
    assert host == replace(DEFAULT, **wanted)


@pytest.mark.parametrize(
    "other", [{}, {"username": "zuul", "connection-port": 22}, {"ssh-port": 22, "labels": ["big"]}]
)
def test_a_host_is_unique_in_a_provider(other: dict[str, Any]) -> None:
    """reference/configuration 8: name, user name and port together; in schema and loader, and in other pools too."""
    node = {"name": "127.0.0.1", "labels": "small"}
    pools = [{"name": "main", "nodes": [node]}, {"name": "second", "nodes": [{**node, **other}]}]
    section = {"name": "lab", "driver": "static", "pools": pools}
    config = StaticProviderConfig(section)
    with pytest.raises(v.MultipleInvalid, match=r"zuul@127\.0\.0\.1:22 is in pool main already") as failure:
        config.getSchema()(section)
    assert failure.value.errors[0].path == ["pools", 1, "nodes", 0, "name"]
    with pytest.raises(ConfigError, match="must be unique"):
        config.load(Config())
    ((path, text),) = StaticProviderConfig.without_effect(section)
    assert (path, "is in pool second again" in text) == (["pools", 0, "nodes", 0, "name"], True)


@pytest.mark.parametrize(("port", "refused"), [(0, True), (1, False), (65535, False), (65536, True)])
def test_ports(port: int, refused: bool) -> None:
    """reference/configuration 8: a daemon leaves a host without a possible port out."""
    node = {"name": "h", "labels": "small", "connection-port": port}
    section = {"name": "lab", "driver": "static", "pools": [{"name": "main", "nodes": [node]}]}
    found = list(StaticProviderConfig.without_effect(section))
    assert bool(found) is refused
    assert all(path[-1] == "connection-port" and f"no port {port}" in text for path, text in found)


@pytest.mark.parametrize("keys", [keys for (keys,) in driver_table("static", "refused")])
def test_schema_refuses(keys: dict[str, Any]) -> None:
    """reference/configuration 8: types, ranges and unknown keys; None = it is missing."""
    node = {key: value for key, value in {"name": "h", "labels": "small", **keys}.items() if value is not None}
    bad = {"name": "lab", "driver": "static", "pools": [{"name": "main", "nodes": [node]}]}
    with pytest.raises(v.Invalid):
        StaticProviderConfig(bad).getSchema()(bad)
