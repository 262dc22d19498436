# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.static.config` (reference/configuration 8)."""

from __future__ import annotations

from typing import Any

import pytest
import voluptuous as v

from nodepool.config.objects import Config, Label
from nodepool.driver.static.config import StaticProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.plan.static import HostId, HostSpec
from tests.unit.driver.static.conftest import LABELS, load


def only_host(config: StaticProviderConfig) -> HostSpec:
    (host,) = config.hosts().values()
    return host


def section(*nodes: dict[str, Any], **pool: Any) -> dict[str, Any]:
    return {"name": "lab", "driver": "static", "pools": [{"name": "main", "nodes": list(nodes), **pool}]}


def test_defaults() -> None:
    """reference/configuration 8: only name and labels are required."""
    assert only_host(load({})) == HostSpec(
        HostId("127.0.0.1", "zuul", 22),
        "main",
        ("small",),
        connection_type="ssh",
        shell_type=None,
        python_path="auto",
        host_keys=(),
        check=True,
        keys_wanted=True,
        slots=1,
        timeout_seconds=5.0,
        attributes=None,
    )


def test_every_key() -> None:
    """reference/configuration 8: all keys of a node, and those of the pool."""
    config = load(
        {
            "labels": ["small", "big"],
            "host-key": ["ssh-rsa AAAA", "ssh-ed25519 BBBB"],
            "host-key-checking": False,
            "timeout": 13,
            "connection-type": "network_cli",
            "connection-port": 830,
            "username": "admin",
            "shell-type": "csh",
            "python-path": "/usr/bin/python3",
            "max-parallel-jobs": 4,
        },
        pool={"node-attributes": {"a": "b"}, "max-servers": 7, "priority": 3},
    )
    assert only_host(config) == HostSpec(
        HostId("127.0.0.1", "admin", 830),
        "main",
        ("small", "big"),
        connection_type="network_cli",
        shell_type="csh",
        python_path="/usr/bin/python3",
        host_keys=("ssh-rsa AAAA", "ssh-ed25519 BBBB"),
        check=False,
        keys_wanted=False,
        slots=4,
        timeout_seconds=13.0,
        attributes={"a": "b"},
    )
    pool = config.pools["main"]
    assert (pool.max_servers, pool.priority, pool.labels) == (7, 3, {"small", "big"})
    assert config.getSupportedLabels() == config.getSupportedLabels("main") == {"small", "big"}
    assert config.getSupportedLabels("elsewhere") == set()
    assert config.manage_images is False


@pytest.mark.parametrize(
    ("keys", "port"),
    [({"ssh-port": 2222}, 2222), ({"ssh-port": 1, "connection-port": 2}, 2), ({"connection-type": "winrm"}, 22)],
)
def test_port(keys: dict[str, Any], port: int) -> None:
    """reference/configuration 8: ssh-port is the old name of connection-port; the default is 22, for winrm too."""
    assert only_host(load(keys)).id.port == port


def test_a_text_is_one_label_and_one_key() -> None:
    """reference/configuration 8: a string is one label, and never split."""
    host = only_host(load({"labels": "big", "host-key": "ssh-rsa AAAA"}))
    assert (host.labels, host.host_keys) == (("big",), ("ssh-rsa AAAA",))
    with pytest.raises(ConfigError, match="label 'small big' is not defined"):
        load({"labels": "small big"})


def test_key_that_is_empty() -> None:
    """It matches no key of the host: the host is not used, instead of being used unchecked."""
    assert only_host(load({"host-key": ""})).host_keys == ("",)


def test_keys_of_others_than_ssh_are_left_out() -> None:
    """S-5: host_keys is empty for other connection types."""
    host = only_host(load({"connection-type": "winrm", "host-key": "ssh-rsa AAAA"}))
    assert (host.host_keys, host.check, host.keys_wanted) == ((), True, False)


@pytest.mark.parametrize(
    "other",
    [{}, {"username": "zuul", "connection-port": 22}, {"ssh-port": 22, "labels": ["big"], "connection-type": "winrm"}],
)
def test_a_host_is_unique_in_a_provider(other: dict[str, Any]) -> None:
    """reference/configuration 8: name, user name and port together; in schema and loader, and in other pools too."""
    twice = section({"name": "127.0.0.1", "labels": "small"})
    twice["pools"].append({"name": "second", "nodes": [{"name": "127.0.0.1", "labels": "small", **other}]})
    config = StaticProviderConfig(twice)
    with pytest.raises(v.MultipleInvalid, match=r"zuul@127\.0\.0\.1:22 is in pool main already") as failure:
        config.getSchema()(twice)
    assert failure.value.errors[0].path == ["pools", 1, "nodes", 0, "name"]
    with pytest.raises(ConfigError, match="must be unique"):
        config.load(Config())


def test_same_name_other_port_is_another_host() -> None:
    """S-6: identity is (name, username, port)."""
    config = load({}, {"connection-port": 23}, {"username": "root"})
    assert len(config.hosts()) == 3


@pytest.mark.parametrize(
    "node",
    [
        {"labels": "small"},
        {"name": "h"},
        {"name": "h", "labels": "small", "connection-type": 7},
        {"name": "h", "labels": "small", "connection-port": 70000},
        {"name": "h", "labels": "small", "timeout": 0},
        {"name": "h", "labels": "small", "max-parallel-jobs": -1},
        {"name": "h", "labels": [1]},
        {"name": "h", "labels": "small", "host-key-checking": "maybe"},
        {"name": "h", "labels": "small", "colour": "red"},
    ],
)
def test_schema_refuses(node: dict[str, Any]) -> None:
    """reference/configuration 8: types, ranges and unknown keys."""
    bad = section(node)
    with pytest.raises(v.Invalid):
        StaticProviderConfig(bad).getSchema()(bad)


def test_equal_sections_compare_equal() -> None:
    """G-4: two loads of the same file are equal; a change is not."""
    assert load({"host-key": ["a", "b"]}) == load({"host-key": ["a", "b"]})
    assert load({"timeout": 5}) != load({"timeout": 6})


def test_pools_are_known_to_their_labels() -> None:
    """reference/driver 4: each label gets the pool."""
    data = section({"name": "h", "labels": ["small", "big"]})
    config = Config()
    config.labels = {name: Label(name) for name in LABELS}
    provider = StaticProviderConfig(data)
    provider.load(config)
    assert config.labels["small"].pools == config.labels["big"].pools == [provider.pools["main"]]
    assert config.labels["other"].pools == []
