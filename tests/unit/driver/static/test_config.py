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
from tests.unit.driver.static.conftest import load

ID = HostId("127.0.0.1", "zuul", 22)
DEFAULT = HostSpec(ID, "main", ("small",), connection_type="ssh", check=True, keys_wanted=True)
KEY = "ssh-rsa AAAA"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, {"shell_type": None, "python_path": "auto", "host_keys": (), "slots": 1, "timeout_seconds": 5.0}),
        ({"labels": ["small", "big", "small"]}, {"labels": ("small", "big")}),
        ({"host-key": [KEY, "B"]}, {"host_keys": (KEY, "B")}),
        # A text is one label, and one key, and never split.
        ({"labels": "big", "host-key": KEY}, {"labels": ("big",), "host_keys": (KEY,)}),
        # An empty key matches none: the host is not used, instead of being used unchecked.
        ({"host-key": ""}, {"host_keys": ("",)}),
        ({"host-key-checking": False, "timeout": 13}, {"check": False, "keys_wanted": False, "timeout_seconds": 13.0}),
        # S-5: other connection types have no host keys.
        ({"connection-type": "winrm", "host-key": KEY}, {"connection_type": "winrm", "keys_wanted": False}),
        (
            {"connection-type": "network_cli", "connection-port": 830, "username": "admin", "host-key": KEY},
            {"connection_type": "network_cli", "id": HostId("127.0.0.1", "admin", 830), "host_keys": (KEY,)},
        ),
        ({"shell-type": "csh", "python-path": "/py"}, {"shell_type": "csh", "python_path": "/py"}),
        ({"max-parallel-jobs": 4, "quarantine-after": 0}, {"slots": 4, "quarantine_after": 0}),
        # ssh-port is the old name of connection-port.
        ({"ssh-port": 2222}, {"id": HostId("127.0.0.1", "zuul", 2222)}),
        ({"ssh-port": 1, "connection-port": 2}, {"id": HostId("127.0.0.1", "zuul", 2)}),
    ],
)  # fmt: skip
def test_keys(keys: dict[str, Any], expected: dict[str, Any]) -> None:
    """reference/configuration 8, S-6: only name and labels are required; of the pool come attributes."""
    (host,) = load(keys, pool={"node-attributes": {"a": "b"}}, quarantine_after=3).hosts().values()
    assert host == replace(DEFAULT, **{"attributes": {"a": "b"}, "quarantine_after": 3, **expected})


def test_pools() -> None:
    """reference/configuration 8: limits, and the labels of all hosts. G-4: two loads of the same file are equal."""
    config = load({"labels": ["small", "big"]}, {"connection-port": 23}, pool={"max-servers": 7, "priority": 3})
    pool = config.pools["main"]
    assert (pool.max_servers, pool.priority, pool.labels, len(config.hosts())) == (7, 3, {"small", "big"}, 2)
    assert config.getSupportedLabels() == config.getSupportedLabels("main") == {"small", "big"}
    assert config.getSupportedLabels("elsewhere") == set()
    assert load({"host-key": ["a", "b"]}) == load({"host-key": ["a", "b"]})
    assert load({"timeout": 5}) != load({"timeout": 6})
    with pytest.raises(ConfigError, match="label 'small big' is not defined"):
        load({"labels": "small big"})


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


@pytest.mark.parametrize(
    "keys",
    [
        *({"name": None}, {"labels": None}, {"labels": [1]}, {"colour": "red"}, {"connection-type": 7}),
        *({"connection-port": 70000}, {"timeout": 0}, {"max-parallel-jobs": -1}, {"host-key-checking": "maybe"}),
    ],
)
def test_schema_refuses(keys: dict[str, Any]) -> None:
    """reference/configuration 8: types, ranges and unknown keys; None = it is missing."""
    node = {key: value for key, value in {"name": "h", "labels": "small", **keys}.items() if value is not None}
    bad = {"name": "lab", "driver": "static", "pools": [{"name": "main", "nodes": [node]}]}
    with pytest.raises(v.Invalid):
        StaticProviderConfig(bad).getSchema()(bad)
