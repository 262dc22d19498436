# SPDX-License-Identifier: Apache-2.0
"""nodepool.model.node: the node record (reference/zookeeper 5.1)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.record import InvalidRecord

#: Every key of the table.
KEYS = {
    *("state", "state_time", "type", "allocated_to", "provider", "pool", "cloud", "region", "az", "host_id"),
    *("external_id", "hostname", "interface_ip", "public_ipv4", "private_ipv4", "public_ipv6", "private_ipv6"),
    *("connection_port", "ssh_port", "connection_type", "username", "python_path", "shell_type", "host_keys"),
    *("image_id", "launcher", "created_time", "comment", "hold_job", "hold_expiration", "user_data", "resources"),
    *("slot", "attributes", "tenant_name", "requestor", "driver_data", "node_properties"),
}


def test_new_node() -> None:
    data = Node("small").to_dict(100.5)
    assert data.keys() == KEYS
    expected = {"state": "init", "state_time": 100.5, "type": ["small"], "created_time": 100.5, "username": "zuul"}
    assert {name: data[name] for name in expected} == expected
    assert (data["connection_port"], data["ssh_port"], data["host_keys"]) == (22, 22, [])
    assert data["node_properties"] == {}


def test_only_the_state_is_needed() -> None:
    """reference/zookeeper 1: readers accept missing keys."""
    node = Node.from_dict({"state": "ready"}, "0000000001")
    assert (node.id, node.state, node.state_time) == ("0000000001", "ready", None)
    assert (node.type, node.username, node.connection_port, node.host_keys, node.slot) == ([], "zuul", 22, [], None)


def test_round_trip_keeps_everything() -> None:
    data: dict[str, Any] = {name: f"<{name}>" for name in KEYS}
    data.update(state="in-use", state_time=1.5, created_time=2, type=["a", "b"], host_keys=["ssh-rsa AAA"], slot=3)
    data.update(hold_expiration=60, resources={"cores": 1}, attributes={"zone": "x"}, node_properties={"spot": True})
    data.update(external_id={"instance": "i-1", "host": "h-1"}, connection_port=2222, ssh_port=2222)
    data.update(user_data={"zuul_system": "z"}, driver_data=[{"a": 1}])
    assert Node.from_dict(data).to_dict(999.0) == data


@pytest.mark.parametrize(("given", "read"), [({}, {}), ({"node_properties": None}, None)])
def test_node_properties(given: dict[str, Any], read: Any) -> None:
    """reference/zookeeper 5: an object, and null only where another program wrote null."""
    node = Node.from_dict({"state": "ready", **given})
    assert node.to_dict(1.0)["node_properties"] == read


def test_unknown_keys_survive() -> None:
    """A newer peer's data is not lost by our writes."""
    node = Node.from_dict({"state": "ready", "new_key": {"a": [1]}, "kubernetes_connection": {"pod": "p"}})
    data = node.to_dict(1.0)
    assert (data["new_key"], data["kubernetes_connection"]) == ({"a": [1]}, {"pod": "p"})


def test_id_in_the_data_is_ignored() -> None:
    """Zuul adds it when it writes."""
    node = Node.from_dict({"state": "ready", "id": "0000000099"}, "0000000001")
    assert node.id == "0000000001"
    assert "id" not in node.to_dict(1.0)


def test_a_bare_string_is_one_label() -> None:
    assert Node.from_dict({"state": "ready", "type": "small"}).type == ["small"]


@pytest.mark.parametrize(
    ("data", "port"),
    [
        ({}, 22),
        ({"ssh_port": 2022}, 2022),
        ({"ssh_port": 2022, "connection_port": 5986}, 5986),
        ({"connection_port": None, "ssh_port": 22}, None),
        ({"connection_port": {"namespace": "n", "host": "h"}}, {"namespace": "n", "host": "h"}),
    ],
)
def test_connection_port(data: dict[str, Any], port: Any) -> None:
    """reference/zookeeper 5.1: ssh_port is a mirror; Zuul writes null back for k8s nodes."""
    node = Node.from_dict({"state": "ready", **data})
    assert node.connection_port == port
    written = node.to_dict(1.0)
    assert (written["connection_port"], written["ssh_port"]) == (port, port)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), (60, 60), ("60", 60), ("soon", 0), (1.9, 1), ([], 0), ("", 0), (float("inf"), 0), (float("nan"), 0)],
)
def test_hold_expiration_is_coerced(value: Any, expected: int | None) -> None:
    assert Node.from_dict({"state": "hold", "hold_expiration": value}).hold_expiration == expected


@pytest.mark.parametrize("state", states.NODE_STATES)
def test_every_state_is_valid(state: str) -> None:
    assert Node.from_dict({"state": state}).state == state


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"state": None},
        {"state": "broken"},
        {"state": ["ready"]},
        {"state": "ready", "state_time": "now"},
        {"state": "ready", "state_time": 10**400},
        {"state": "ready", "created_time": True},
        {"state": "ready", "type": [1]},
        {"state": "ready", "type": {"a": 1}},
        {"state": "ready", "provider": 5},
        {"state": "ready", "allocated_to": ["x"]},
        {"state": "ready", "slot": "1"},
        {"state": "ready", "slot": True},
        {"state": "ready", "host_keys": "ssh-rsa"},
        {"state": "ready", "resources": [1]},
        {"state": "ready", "attributes": "x"},
    ],
)
def test_wrong_types_are_no_node(data: dict[str, Any]) -> None:
    with pytest.raises(InvalidRecord):
        Node.from_dict(data)


def test_state_is_checked() -> None:
    with pytest.raises(TypeError, match="'broken' is not a valid state"):
        Node().state = "broken"


def test_state_time_moves_with_the_state_only() -> None:
    """reference/zookeeper 1: a change sets state_time to now, loading restores the stored one."""
    node = Node.from_dict({"state": "ready", "state_time": 5.0})
    assert node.to_dict(100.0)["state_time"] == 5.0
    node.comment = "x"
    assert node.to_dict(101.0)["state_time"] == 5.0
    node.state = states.IN_USE
    assert node.to_dict(102.0)["state_time"] == 102.0
    assert node.to_dict(103.0)["state_time"] == 102.0, "the same state stored again"


def test_created_time_is_the_first_store() -> None:
    node = Node("a")
    node.to_dict(7.0)
    assert node.to_dict(8.0)["created_time"] == 7.0


def test_load_replaces_all_fields() -> None:
    node = Node.from_dict({"state": "ready", "provider": "p", "username": "u", "slot": 1, "extra_key": 1})
    node.load({"state": "used"})
    assert (node.state, node.provider, node.username, node.slot, node.extra) == ("used", None, "zuul", None, {})


def test_copy_is_independent() -> None:
    node = Node.from_dict(
        {"state": "ready", "type": ["a"], "attributes": {"x": [1]}, "driver_data": [{"a": 1}], "new": {"b": {}}}
    )
    copy = node.copy()
    copy.type.append("b")
    copy.state = states.USED
    assert copy.attributes is not None
    copy.attributes["x"].append(2)
    copy.driver_data[0]["a"] = 2
    copy.extra["new"]["b"]["c"] = 1
    assert (node.type, node.state, node.attributes) == (["a"], "ready", {"x": [1]})
    assert (node.driver_data, node.extra) == ([{"a": 1}], {"new": {"b": {}}})


def test_reserved_names_are_not_written() -> None:
    """reference/zookeeper 5.1: Zuul sets every key as an attribute of its node object."""
    reserved = {"name", "aliases", "label", "lock", "stat", "uuid", "reuse", "kubernetes_connection"}
    assert not reserved & Node("a").to_dict(1.0).keys()


def test_free() -> None:
    """Q-15: a free ready node counts for no tenant; one that is still to be deleted does."""
    tenants = {}
    for state in (states.READY, states.FAILED):
        node = Node.from_dict({"state": state, "type": ["small"], "allocated_to": "200-1", "tenant_name": "tenant"})
        node.free()
        assert node.allocated_to is None
        tenants[state] = node.tenant_name
    assert tenants == {states.READY: None, states.FAILED: "tenant"}


def test_for_released_drivers() -> None:
    """Methods of 11.0.0: there and back."""
    data = Node("small").to_dict(5.0)
    node = Node.fromDict(data, "0000000001")
    assert node.toDict() == data
    node.updateFromDict({**data, "az": "z1"})
    assert (node.id, node.az) == ("0000000001", "z1")


def test_event_of_the_request() -> None:
    """J-10: kept by whoever writes the record; a node without one has the keys of Nodepool 11 only."""
    node = Node("a")
    assert "request_event_id" not in node.to_dict(1.0)
    node.allocated_to, node.request_event_id = "200-1", "E"
    read = Node.from_dict(node.to_dict(1.0))
    assert (read.request_event_id, read.extra) == ("E", {})
    read.free()
    assert read.request_event_id is None
    assert "request_event_id" not in read.to_dict(2.0)


@pytest.mark.parametrize("value", [None, 5, ["E"]])
def test_odd_event(value: object) -> None:
    """J-10: no decision rests on it."""
    assert Node.from_dict({"state": "ready", "request_event_id": value}).request_event_id is None


def test_hold() -> None:
    """The reason and the end are fields that released launchers know; who it was is a key that readers ignore."""
    node = Node.from_dict({"state": "ready", "state_time": 1.0, "something_new": 1}, "0000000001")
    assert (node.hold_by, node.hold_until) == (None, None)
    node.hold(by="alice@desk", reason="bug 17", seconds=60)
    data = node.to_dict(100.0)
    assert (data["state"], data["state_time"], data["comment"], data["hold_expiration"]) == (
        "hold",
        100.0,
        "bug 17",
        60,
    )
    assert (data["hold_by"], data["something_new"]) == ("alice@desk", 1)
    again = Node.from_dict(data, "0000000001")
    assert (again.hold_by, again.hold_until) == ("alice@desk", 160.0)


def test_hold_again_keeps_what_is_not_given() -> None:
    node = Node()
    node.hold(by="alice", reason="bug 17", seconds=60)
    node.hold(by="bob", reason=None, seconds=None)
    assert (node.hold_by, node.comment, node.hold_expiration) == ("bob", "bug 17", 60)


@pytest.mark.parametrize("value", [0, -1, 10**400])
def test_hold_without_an_end(value: int) -> None:
    node = Node()
    node.hold(by="alice", reason=None, seconds=value)
    node.state_time = 1.0
    assert node.hold_until is None
