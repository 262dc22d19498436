# SPDX-License-Identifier: Apache-2.0
"""Foreign, broken and vanishing znodes: logged, isolated, nothing lost; the launcher goes on serving."""

from __future__ import annotations

import json

import pytest

from tests.support.launcher import LauncherProcess, impatient_command
from tests.support.launcher_config import FakeProvider, StaticHost, StaticProvider
from tests.support.pool_znodes import COMPONENTS, NODES, REQUEST_LOCKS, REQUESTS, PoolZnodes
from tests.support.tables import table
from tests.support.wait import wait_for
from tests.support.workplace import Workplace

PROVIDER = StaticProvider([StaticHost("127.1.1.1"), StaticHost("127.1.1.2")])
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


def values(kind: str) -> dict[str, bytes]:
    """What a znode of this kind may have, and must not have: each difference from one that is right; no objects."""
    texts = {name: json.loads(text) for name, text in table(__file__, "bad_znodes")[kind].items()}
    right = texts.pop("right")
    return NOT_OBJECTS | {name: json.dumps({**right, **change}).encode() for name, change in texts.items()}


def _still_serves(workplace: Workplace, launcher: LauncherProcess) -> None:
    """Each kind of worker does its work: requests are served, failed and fulfilled, used nodes come back."""
    znodes = workplace.znodes
    for _ in range(2):
        request_id = znodes.submit(["small"])
        (node_id,) = znodes.fulfilled(request_id)["nodes"]
        with znodes.kazoo.Lock(f"{NODES}/{node_id}/lock", "client"):
            znodes.delete_request(request_id)
            znodes.change_node(node_id, state="used")
        wait_for("the used node is deleted", lambda n=node_id: not znodes.kazoo.exists(f"{NODES}/{n}"))  # type: ignore[misc]
        wait_for("its host is back", lambda: _own_free(workplace) == 2)
    failed = znodes.submit(["unknown"])
    wait_for("an unknown label fails", lambda: znodes.request_state(failed) == "failed")
    znodes.delete_request(failed)
    assert launcher.running
    assert "Exception in thread" not in launcher.log_text()


def _own_free(workplace: Workplace) -> int:
    hosts = {host.name for host in PROVIDER.hosts}
    nodes = workplace.znodes.free_nodes().values()
    return sum(node.get("launcher") == "static driver" and node.get("hostname") in hosts for node in nodes)


KINDS = ("pool", "launcher", "builder", "unknown")


@pytest.mark.parametrize("when", ["before", "running"])
def test_records_of_all_kinds(workplace: Workplace, when: str) -> None:
    """Unparseable, empty and foreign nodes, requests and entries of the registry, found at start or later.

    No request is lost, and those are left to their owner.
    """
    znodes = workplace.znodes
    create = znodes.kazoo.create
    ids: dict[str, str] = {}

    def disturb() -> None:
        for value in values("node").values():
            znodes.create_node(value)
        for name, value in values("request").items():
            # Served before all others, so that one that is not put aside would be in the way.
            ids[name] = znodes.submit_raw(value, "000")
        for name in ("nodes/not-a-number", "requests/nonsense", "nodes/lock", "requests/lock"):
            create(f"/nodepool/{name}", b"" if name.endswith("lock") else b"{}")
        for kind in KINDS:
            for name, value in (NOT_OBJECTS if kind != "pool" else values("pool")).items():
                create(f"{COMPONENTS}/{kind}/{name}", value, makepath=True)

    if when == "before":
        znodes.kazoo.ensure_path(NODES)
        disturb()
        launcher = workplace.launch(PROVIDER, wait=False)
    else:
        launcher = workplace.launch(PROVIDER)
        disturb()
    wait_for("hosts are registered", lambda: launcher.running and _own_free(workplace) + _fulfilled(znodes, ids) >= 2)
    request_id = znodes.submit(["small"])
    wait_for("served", lambda: _given_back(znodes, ids) and znodes.request_state(request_id) == "fulfilled")
    znodes.delete_request(request_id)
    # Some entries look like pools that may still serve a label. When they have been removed, all is as ever.
    for kind in KINDS:
        for name in znodes.children(f"{COMPONENTS}/{kind}"):
            if not znodes.kazoo.get(f"{COMPONENTS}/{kind}/{name}")[1].ephemeralOwner:
                znodes.kazoo.delete(f"{COMPONENTS}/{kind}/{name}")
    wait_for("hosts are free", lambda: _given_back(znodes, ids) and _own_free(workplace) == 2)
    _still_serves(workplace, launcher)
    assert all(znodes.kazoo.exists(f"{REQUESTS}/{request_id}") for request_id in ids.values())


def _fulfilled(znodes: PoolZnodes, ids: dict[str, str]) -> int:
    return sum(znodes.request_state(request_id) == "fulfilled" for request_id in ids.values())


def _given_back(znodes: PoolZnodes, ids: dict[str, str]) -> bool:
    """What can be understood may be served (e.g. without a relative priority); then its nodes go back."""
    for name in [name for name in ids if znodes.request_state(ids[name]) == "fulfilled"]:
        znodes.delete_request(ids.pop(name))
    return True


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
    znodes.fulfilled(hindered)
    znodes.delete_request(hindered)
    _still_serves(workplace, launcher)


def test_requests_that_ask_for_odd_things(workplace: Workplace) -> None:
    """A-6, A-13, A-15, A-20: unknown labels, also among known ones and in large numbers, and too many nodes.

    They fail, and take no node; a request for no nodes is fulfilled with none.
    """
    launcher = workplace.launch(PROVIDER)
    znodes = workplace.znodes
    labels = [["x"], ["small", "x"], ["x"] * 500, [""], ["small\n"], ["ü" * 300], ["small"] * 500, []]
    ids = [znodes.submit(each) for each in labels]
    for request_id in ids:
        wait_for(f"{request_id} ends", lambda r=request_id: znodes.request_state(r) in ("failed", "fulfilled"))  # type: ignore[misc]
    assert [znodes.request_state(request_id) for request_id in ids] == ["failed"] * 7 + ["fulfilled"]
    (pool,) = znodes.pools()
    assert [(znodes.request(ids[number]) or {})[key] for number, key in ((6, "declined_by"), (7, "nodes"))] == [
        [pool["id"]],
        [],
    ]
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
    first, second, third = znodes.fulfilled(request_id)["nodes"]
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
    znodes.fulfilled(again)
    znodes.delete_request(again)
    wait_for("hosts are free", lambda: _own_free(workplace) == 2)
    _still_serves(workplace, launcher)
