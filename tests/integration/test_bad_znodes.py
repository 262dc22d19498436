# SPDX-License-Identifier: Apache-2.0
"""Foreign, broken and vanishing znodes: logged, isolated, nothing lost; the launcher goes on serving."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.launcher import LauncherProcess, impatient_command
from tests.support.launcher_config import FakeProvider, StaticHost, StaticProvider
from tests.support.pool_znodes import COMPONENTS, NODES, REQUEST_LOCKS, REQUESTS
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

PROVIDER = StaticProvider([StaticHost("127.1.1.1"), StaticHost("127.1.1.2")])
NODE: dict[str, Any] = {
    "state": "ready",
    "state_time": 1.0,
    "type": ["small"],
    "provider": "static-one",
    "pool": "main",
    "allocated_to": None,
}
REQUEST: dict[str, Any] = {"state": "requested", "state_time": 1.0, "node_types": ["small"], "requestor": "somebody"}

NOT_OBJECTS = {
    "empty": b"",
    "not-utf8": b"\xff\xfe{}",
    "cut": b'{"state": "ready"',
    "list": b"[]",
    "number": b"5",
    "text": b'"x"',
    "null": b"null",
    "deep": b"[" * 5000 + b"]" * 5000,
    "big-number": b"9" * 5000,
    "no-keys": b"{}",
}
WRONG_NODES: dict[str, dict[str, Any]] = {
    "state": {"state": 5},
    "unknown-state": {"state": "sleeping"},
    "state-time": {"state_time": "yesterday"},
    "type-number": {"type": 7},
    "type-of-numbers": {"type": [1, None]},
    "provider": {"provider": ["x"]},
    "pool": {"pool": {}},
    "allocated-to": {"allocated_to": 3},
    "allocated-to-no-name": {"allocated_to": "\ud800"},
    "allocated-to-elsewhere": {"allocated_to": "../nodes"},
    "slot": {"slot": "first", "hostname": "127.1.1.1"},
    "hostname": {"hostname": ["127.1.1.1"], "slot": 0},
    "hold": {"state": "hold", "hold_expiration": "soon"},
    "used": {"state": "used", "external_id": {"a": 1}, "username": []},
    "resources": {"resources": ["cores"]},
}
WRONG_REQUESTS: dict[str, dict[str, Any]] = {
    "state": {"state": []},
    "unknown-state": {"state": "dreaming"},
    "labels-number": {"node_types": 3},
    "labels-text": {"node_types": "small"},
    "labels-of-numbers": {"node_types": [1, {"a": 2}]},
    "labels-null": {"node_types": None},
    "declined-by": {"declined_by": "everybody"},
    "relative-priority": {"relative_priority": "first"},
    "nodes": {"nodes": 1},
    "provider": {"provider": ["static-one"]},
    "tenant": {"tenant_name": {"a": 1}},
    "pending": {"state": "pending", "nodes": [5]},
    "pending-no-names": {"state": "pending", "node_types": ["nobody-has-it"], "nodes": ["..", "\ud800", "\u0000"]},
}


def _values(wrong: dict[str, dict[str, Any]], right: dict[str, Any]) -> dict[str, bytes]:
    return NOT_OBJECTS | {name: json.dumps({**right, **change}).encode() for name, change in wrong.items()}


def _still_serves(workplace: Workplace, launcher: LauncherProcess) -> None:
    """Each kind of worker does its work: requests are served, failed and fulfilled, used nodes come back."""
    znodes = workplace.znodes
    for _ in range(2):
        request_id = znodes.submit(["small"])
        wait_for(f"{request_id} is fulfilled", lambda r=request_id: znodes.request_state(r) == "fulfilled")  # type: ignore[misc]
        (node_id,) = (znodes.request(request_id) or {})["nodes"]
        with znodes.kazoo.Lock(f"{NODES}/{node_id}/lock", "client"):
            znodes.delete_request(request_id)
            znodes.change_node(node_id, state="used")
        wait_for("the used node is gone", lambda n=node_id: not znodes.kazoo.exists(f"{NODES}/{n}"))  # type: ignore[misc]
        wait_for("its host is back", lambda: _own_free(workplace) == 2)
    failed = znodes.submit(["nobody-has-it"])
    wait_for("an unknown label fails", lambda: znodes.request_state(failed) == "failed")
    znodes.delete_request(failed)
    assert launcher.running
    assert "Exception in thread" not in launcher.log_text()


def _own_free(workplace: Workplace) -> int:
    hosts = {host.name for host in PROVIDER.hosts}
    nodes = workplace.znodes.free_nodes().values()
    return sum(node.get("launcher") == "static driver" and node.get("hostname") in hosts for node in nodes)


@pytest.mark.parametrize("when", ["before", "running"])
def test_nodes(workplace: Workplace, when: str) -> None:
    """Unparseable, empty and foreign node znodes, found at start or later."""
    znodes = workplace.znodes

    def disturb() -> None:
        for value in _values(WRONG_NODES, NODE).values():
            znodes.create_node(value)
        znodes.kazoo.create(f"{NODES}/not-a-number", b"{}")
        znodes.kazoo.create(f"{NODES}/lock", b"")

    launcher = _disturbed(workplace, when, disturb)
    _still_serves(workplace, launcher)


@pytest.mark.parametrize("when", ["before", "running"])
def test_requests(workplace: Workplace, when: str) -> None:
    """Unparseable, empty and foreign request znodes: nobody's request is lost, theirs are left to their owner."""
    znodes = workplace.znodes
    ids: dict[str, str] = {}

    def disturb() -> None:
        for name, value in _values(WRONG_REQUESTS, REQUEST).items():
            # Served before all others, so that one that is not put aside would be in the way.
            ids[name] = znodes.submit_raw(value, "000")
        znodes.kazoo.create(f"{REQUESTS}/nonsense", b"{}")
        znodes.kazoo.create(f"{REQUESTS}/lock", b"")

    launcher = _disturbed(workplace, when, disturb)
    for name in [name for name in ids if znodes.request_state(ids[name]) == "fulfilled"]:
        # What can be understood may be served (e.g. without a relative priority); then its nodes go back.
        znodes.delete_request(ids.pop(name))
    wait_for("hosts are free", lambda: _own_free(workplace) == 2)
    _still_serves(workplace, launcher)
    assert all(znodes.kazoo.exists(f"{REQUESTS}/{request_id}") for request_id in ids.values())


@pytest.mark.parametrize("when", ["before", "running"])
def test_components(workplace: Workplace, when: str) -> None:
    """Unparseable, empty and foreign entries of the registry, of pools and of kinds that nobody knows."""
    wrong: dict[str, dict[str, Any]] = {
        "id": {"id": 3},
        "labels-text": {"supported_labels": "small"},
        "labels-number": {"supported_labels": 3},
        "labels-of-lists": {"supported_labels": [["small"]]},
        "priority": {"priority": "high"},
        "paused": {"paused": "maybe"},
        "provider": {"provider_name": {}},
        "state": {"state": 3},
    }
    pool = {
        "id": "foreign",
        "kind": "pool",
        "state": "running",
        "supported_labels": [],
        "provider_name": "x",
        "name": "y",
    }

    def disturb() -> None:
        for kind in ("pool", "launcher", "builder", "unknown"):
            for name, value in (NOT_OBJECTS if kind != "pool" else _values(wrong, pool)).items():
                workplace.znodes.kazoo.create(f"{COMPONENTS}/{kind}/{name}", value, makepath=True)

    launcher = _disturbed(workplace, when, disturb)
    znodes = workplace.znodes
    request_id = znodes.submit(["small"])
    wait_for("served", lambda: znodes.request_state(request_id) == "fulfilled")
    znodes.delete_request(request_id)
    assert launcher.running
    # Some of them look like pools that may still serve a label. When they are gone, all is as ever.
    for kind in ("pool", "launcher", "builder", "unknown"):
        for name in znodes.children(f"{COMPONENTS}/{kind}"):
            if not znodes.kazoo.get(f"{COMPONENTS}/{kind}/{name}")[1].ephemeralOwner:
                znodes.kazoo.delete(f"{COMPONENTS}/{kind}/{name}")
    wait_for("hosts are free", lambda: _own_free(workplace) == 2)
    _still_serves(workplace, launcher)


def test_lock_contenders(workplace: Workplace) -> None:
    """Foreign children in lock directories count as holders; when they go, the node and the request are served."""
    launcher = workplace.launch(PROVIDER)
    znodes = workplace.znodes
    first, second = sorted(znodes.nodes())
    names = ["garbage", "x__lock__", "x__lock__notanumber", "x__rlock__0000000001", "ü__lock__0000000003"]
    for name in names:
        znodes.kazoo.create(f"{NODES}/{first}/lock/{name}", b"\xff\x00", makepath=True)
        znodes.kazoo.create(f"{REQUEST_LOCKS}/200-0000000000/{name}", b"\xff\x00", makepath=True)
        znodes.kazoo.create(f"{REQUEST_LOCKS}/no-request/{name}", b"\xff\x00", makepath=True)
    hindered = znodes.submit(["small"])
    assert hindered == "200-0000000000"
    one = znodes.submit(["small"])
    wait_for("served with the other node", lambda: (znodes.request(one) or {}).get("nodes") == [second])
    znodes.delete_request(one)
    two = znodes.submit(["small", "small"])
    assert znodes.request_state(hindered) == "requested"
    for name in names:
        znodes.kazoo.delete(f"{NODES}/{first}/lock/{name}")
    wait_for("served with both", lambda: sorted((znodes.request(two) or {}).get("nodes", [])) == [first, second])
    znodes.delete_request(two)
    for name in names:
        znodes.kazoo.delete(f"{REQUEST_LOCKS}/200-0000000000/{name}")
    wait_for("served at last", lambda: znodes.request_state(hindered) == "fulfilled")
    znodes.delete_request(hindered)
    _still_serves(workplace, launcher)


def test_labels_that_nobody_has(workplace: Workplace) -> None:
    """A-6, A-15: unknown labels, also among known ones and in large numbers: failed, and no node is taken."""
    launcher = workplace.launch(PROVIDER)
    znodes = workplace.znodes
    ids = [znodes.submit(labels) for labels in (["x"], ["small", "x"], ["x"] * 500, [""], ["small\n"], ["ü" * 300])]
    for request_id in ids:
        wait_for(f"{request_id} failed", lambda r=request_id: znodes.request_state(r) == "failed")  # type: ignore[misc]
    workplace.wait_nodes(PROVIDER)
    _still_serves(workplace, launcher)


def test_empty_label_list(workplace: Workplace) -> None:
    """A-20: a request for no nodes is fulfilled with none."""
    launcher = workplace.launch(PROVIDER)
    znodes = workplace.znodes
    request_id = znodes.submit([])
    wait_for("fulfilled", lambda: znodes.request_state(request_id) == "fulfilled")
    assert (znodes.request(request_id) or {})["nodes"] == []
    workplace.wait_nodes(PROVIDER)
    _still_serves(workplace, launcher)


def test_more_nodes_than_there_are_hosts(workplace: Workplace) -> None:
    """A-13: 500 nodes from two hosts: declined by the only pool, so failed; others are served meanwhile."""
    launcher = workplace.launch(PROVIDER)
    znodes = workplace.znodes
    request_id = znodes.submit(["small"] * 500, "100")
    wait_for("failed", lambda: znodes.request_state(request_id) == "failed")
    (pool,) = znodes.pools()
    assert (znodes.request(request_id) or {})["declined_by"] == [pool["id"]]
    workplace.wait_nodes(PROVIDER)
    _still_serves(workplace, launcher)


def test_nodes_deleted_under_us(workplace: Workplace) -> None:
    """S-10: free, allocated and used nodes and lock directories vanish: others are served, the hosts come back."""
    hosts = [StaticHost("127.1.2.1", ["other"]), *(StaticHost(f"127.1.3.{n}", ["big"]) for n in range(1, 5))]
    lost = StaticProvider(hosts, name="static-lost")
    # Nothing tells of a host's node that vanished: the provider's next look without any event finds it.
    command = impatient_command({"nodepool.driver.static.provider.RESYNC_SECONDS": 5.0})
    launcher = workplace.launch([PROVIDER, lost], command=command)
    znodes = workplace.znodes
    request_id = znodes.submit(["big", "big", "big"])
    wait_for("fulfilled", lambda: znodes.request_state(request_id) == "fulfilled")
    first, second, third = (znodes.request(request_id) or {})["nodes"]
    znodes.vanish(first)
    with znodes.kazoo.Lock(f"{NODES}/{second}/lock", "client"):
        znodes.change_node(second, state="in-use")
        znodes.vanish(second)
    for node_id, node in znodes.nodes().items():
        if node["type"] == ["other"]:
            znodes.vanish(node_id)
    waiting = znodes.submit(["other"])
    znodes.kazoo.delete(REQUEST_LOCKS, recursive=True)
    znodes.delete_request(request_id)
    wait_for("the third one is free", lambda: third in znodes.free_nodes())
    _still_serves(workplace, launcher)
    wait_for("the request for a vanished host is served", lambda: znodes.request_state(waiting) == "fulfilled", 90)
    znodes.delete_request(waiting)
    workplace.wait_nodes(lost)


def test_node_deleted_while_it_is_built(workplace: Workplace) -> None:
    """L-6: a node that vanishes during its launch: the request gets another one or fails, and is not stuck."""
    cloud = FakeProvider(["vm"], settings={"boot-seconds": 1})
    launcher = workplace.launch([PROVIDER, cloud], wait=False)
    workplace.wait_registered(launcher, 2)
    workplace.wait_nodes(PROVIDER)
    launcher.expected_tracebacks = True
    znodes = workplace.znodes
    request_id = znodes.submit(["vm"])
    (node_id,) = wait_for("a node is built", lambda: list(znodes.nodes("building")))
    znodes.vanish(node_id)
    wait_for("it has an end", lambda: znodes.request_state(request_id) in ("fulfilled", "failed"))
    assert node_id not in (znodes.request(request_id) or {})["nodes"]
    znodes.delete_request(request_id)
    again = znodes.submit(["vm"])
    wait_for("the next one is served", lambda: znodes.request_state(again) == "fulfilled")
    znodes.delete_request(again)
    wait_for("hosts are free", lambda: _own_free(workplace) == 2)
    _still_serves(workplace, launcher)


def _disturbed(workplace: Workplace, when: str, disturb: Callable[[], None]) -> LauncherProcess:
    """A launcher that finds bad znodes when it starts, or gets them while it runs; its hosts are registered."""
    if when == "before":
        workplace.znodes.kazoo.ensure_path(NODES)
        disturb()
        launcher = workplace.launch(PROVIDER, wait=False)
        wait_for("hosts are registered", lambda: launcher.running and _own_free(workplace) == 2)
    else:
        launcher = workplace.launch(PROVIDER)
        disturb()
    return launcher
