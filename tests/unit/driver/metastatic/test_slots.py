# SPDX-License-Identifier: Apache-2.0
"""Slots of backing nodes: requested, claimed, given out, shared, freed, found again and released (rules T)."""

from __future__ import annotations

import json
import logging
import time
from concurrent.futures import Future
from typing import Any

import pytest

from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.metastatic.allocator import SlotAllocator
from nodepool.exceptions import ZKConnectionError
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.backing_pool import BackingPool
from tests.support.wait import wait_for
from tests.unit.driver.metastatic.conftest import NEVER, OWNER, MakeSite, change_user_data, place, set_constant

AWAY = ZKConnectionError("connection lost")
THREE = {"max-parallel-jobs": 3}


def state_of(zk: MemoryZooKeeper, node_id: str) -> str | None:
    node = zk.getNode(node_id)
    return None if node is None else node.state


# -- slots are given out --


def test_one_node(make_site: MakeSite) -> None:
    """T-1, T-3, T-5: what is stored with the node, and with its backing node."""
    site = make_site()
    (node,) = site.serve()
    ((backing_id, data),) = site.backing().items()
    backing = site.zk.getNode(backing_id)
    assert place(node) == (backing_id, 0)
    assert node.external_id == node.id == node.driver_data["node"]
    assert node.driver_data["metadata"]["nodepool_node_id"] == node.id
    for name in (
        *("interface_ip", "public_ipv4", "cloud", "region", "az", "host_keys"),
        *("username", "python_path", "connection_type", "connection_port", "shell_type"),
    ):
        assert getattr(node, name) == getattr(backing, name)
    assert node.attributes == {"backing": "yes", "both": "pool"}
    assert node.resources == {"cores": 0, "instances": 1, "ram": 0}
    assert time.time() - data["launched"] < NEVER
    assert (data["owner"], data["label"], data["nodes"]) == (OWNER, "small", [node.id, None])
    assert site.zk.getNodeLockContenders(backing_id) == [OWNER]
    wait_for("the backing request is deleted", lambda: not site.requests())


def test_freed_slots(make_site: MakeSite, pool: BackingPool) -> None:
    """T-7, T-1: the lowest free slot first; who waits takes one that becomes free, and needs no backing request."""
    site = make_site(THREE)
    by_slot = {place(node)[1]: node for node in site.serve("small", "small", "small")}
    site.delete(by_slot[2], by_slot[0])
    assert [place(node)[1] for node in [*site.serve(), *site.serve()]] == [0, 2]
    assert len(pool.served) == 1
    wait_for("its backing request is deleted", lambda: not site.requests())
    pool.hold = True
    handler = site.begin()
    wait_for("a backing request", site.requests)
    site.delete(by_slot[1])
    (node,) = site.finish(handler)
    assert place(node) == place(by_slot[1])
    wait_for("the backing request is taken back", lambda: not site.requests())


def test_restart(make_site: MakeSite, zk: MemoryZooKeeper, pool: BackingPool) -> None:
    """T-6: slots are found again, also of older launchers, which leave only ``driver_data``. Both ``user_data`` and the
    lock must say whose a backing node is.
    """
    site = make_site(THREE)
    nodes = site.serve("small", "small")
    site.end()
    (backing_id,) = site.backing()
    other = Node("big")
    other.provider, other.state = "backing", states.IN_USE
    other.user_data = json.dumps(site.backing()[backing_id])
    zk.storeNode(other)
    zk.lockNode(other, identifier="another")
    change_user_data(zk, backing_id, nodes=None)
    again = make_site(THREE)
    (third,) = again.serve()
    assert place(third) == (backing_id, 2)
    again.delete(*nodes)
    (fourth,) = again.serve()
    assert place(fourth) == (backing_id, 0)
    assert len(pool.served) == 1


def test_slots_of_others(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """T-6: a node of another provider, or one that is not there, has no slot; one that cannot be read keeps its slot as
    long as its znode is there.
    """
    site = make_site()
    site.delete(*site.serve())
    ((backing_id, _),) = site.backing().items()
    change_user_data(zk, backing_id, nodes=[backing_id, "unknown"])
    first, second = site.serve("small", "small")
    assert {place(first), place(second)} == {(backing_id, 0), (backing_id, 1)}
    get = zk.cache.nodes.get
    monkeypatch.setattr(zk.cache.nodes, "get", lambda node_id: None if node_id == first.id else get(node_id))
    zk.nodes.table.tell(first.key)
    site.delete(second)
    third, fourth = site.serve("small", "small")
    assert len({place(node) for node in (first, third, fourth)}) == 3
    zk.deleteRawNode(first.key)
    site.pass_now(sweep=True)
    (fifth,) = site.serve()
    assert place(fifth) == place(first)


def test_another_launcher_was_faster(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """T-6: what is decided on an older version is decided anew, with what the other one wrote."""
    site = make_site(THREE)
    site.serve()
    ((backing_id, data),) = site.backing().items()
    other = Node("small")
    other.provider, other.state = "shared", states.BUILDING
    zk.storeNode(other)
    save = zk.nodes.save

    def outrun(node: Node) -> None:
        if node.id == backing_id:
            monkeypatch.setattr(zk.nodes, "save", save)
            change_user_data(zk, backing_id, nodes=[data["nodes"][0], other.id, None])
        save(node)

    monkeypatch.setattr(zk.nodes, "save", outrun)
    (node,) = site.serve()
    assert place(node) == (backing_id, 2)
    assert zk.nodes.save == save


# -- backing requests and claims --


@pytest.mark.parametrize("trouble", ["fails", "vanishes", "node is taken", "answer is lost"])
def test_backing_request(
    make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """T-4: another attempt gets another request, and no request is left. One without an answer is found and used."""
    create, lost = zk.requests.create, list[str | None]()

    def lose(request: NodeRequest, priority: str) -> None:
        create(request, priority)
        if request.requestor == OWNER and not lost and trouble == "answer is lost":
            lost.append(request.id)
            raise AWAY

    monkeypatch.setattr(zk.requests, "create", lose)
    pool.lose_nodes, pool.fail_next = int(trouble == "node is taken"), int(trouble == "fails")
    pool.hold = trouble == "vanishes"
    site = make_site()
    handler = site.begin()
    if pool.hold:
        (request_id,) = wait_for("a backing request", site.requests)
        zk.deleteNodeRequest(NodeRequest(id=request_id))
        wait_for("there is another", lambda: site.requests() not in ([], [request_id]))
        pool.hold = False
        pool.look()
    site.finish(handler)
    assert len(pool.served) == 1 + (trouble == "node is taken")
    assert not lost or pool.served == lost
    wait_for("the backing requests are deleted", lambda: not site.requests())


def test_request_without_need(make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper) -> None:
    """T-4: no backing request is left when the node that it was for was deleted."""
    pool.hold = True
    site = make_site()
    handler = site.begin()
    wait_for("a backing request", site.requests)
    (node,) = handler.nodeset
    zk.deleteRawNode(node.key)
    launch = site.provider.launch_of(node.key)
    assert launch is not None
    launch.abandon()
    wait_for("the backing request is taken back", lambda: not site.requests())
    zk.deleteNodeRequest(handler.request)
    site.worker.drive(handler, 30)


@pytest.mark.parametrize("applied", [True, False])
def test_answer_to_the_claim_was_lost(
    make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    """T-3: whether the claim was written or not, the node is ours in the end, and used."""
    lock_for_good, lost = zk.nodes.lock_for_good, list[str | None]()

    def lose(node: Node, identifier: str) -> str:
        if not lost:
            lost.append(node.id)
            if applied:
                lock_for_good(node, identifier)
            raise AWAY
        return lock_for_good(node, identifier)

    monkeypatch.setattr(zk.nodes, "lock_for_good", lose)
    site = make_site()
    (node,) = site.serve()
    assert [place(node)[0]] == lost
    assert len(pool.served) == 1
    assert site.backing()[place(node)[0]]["nodes"] == [node.id, None]


@pytest.mark.parametrize("long", [False, True])
def test_locked_backing_node(
    make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    """T-3: the lock of another client is waited for, but not for ever: then another backing node is requested."""
    if long:
        set_constant(monkeypatch, SlotAllocator, "CLAIM_SECONDS", 0.0)
    pool.lock_nodes = 1
    site = make_site()
    handler = site.begin()
    (node,) = wait_for("the backing node is there", lambda: pool.locked)
    if not long:
        site.pass_now()
        assert not site.backing()
        zk.unlockNode(node)
    site.finish(handler)
    assert len(pool.served) == 1 + long
    assert state_of(zk, node.key) == (states.READY if long else states.IN_USE)


# -- release --


def test_released_when_empty(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """T-8: `used` and unlocked in one write, a few in each pass, and in the end all, also if answers were lost. From
    idle() on they are the successor's (G-5).
    """
    set_constant(monkeypatch, SlotAllocator, "MOST_RELEASES", 2)
    save_and_release, calls = zk.nodes.save_and_release, list[str]()

    def lose(node: Node, contender: str) -> None:
        calls.append(node.key)
        if len(calls) != 1:
            save_and_release(node, contender)
        if len(calls) <= 2:
            raise AWAY

    monkeypatch.setattr(zk.nodes, "save_and_release", lose)
    site = make_site({"grace-time": 0})
    nodes = site.serve(*["small"] * 9)
    site.delete(nodes[0])
    site.pass_now()
    assert len(site.backing()) == 5
    site.delete(*nodes[1:])
    site.wait_empty()
    assert (len(calls), len(set(calls))) == (6, 5)
    (node,) = site.serve()
    site.provider.idle()
    site.delete(node)
    site.pass_now()
    assert site.backing()
    make_site({"grace-time": 0})
    site.wait_empty()


def test_grace_goes_on_after_a_restart(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-6, T-8, T-9: since when a backing node is empty is noted, and forgotten when it is used again. Beyond max-age
    it gets no new nodes, and no grace.
    """
    set_constant(monkeypatch, SlotAllocator, "NOTE_IDLE_SECONDS", 0.0)
    site = make_site({"grace-time": 1000, "max-age": 1000})
    for _ in range(2):
        (node,) = site.serve()
        ((backing_id, data),) = site.backing().items()
        assert data["idle_since"] is None
        site.delete(node)
        wait_for("it is noted", lambda: all(found["idle_since"] is not None for found in site.backing().values()))
    site.end()
    change_user_data(zk, backing_id, idle_since=time.time() - 900)
    site = make_site({"grace-time": 1000, "max-age": 1000})
    site.pass_now()
    assert site.backing()
    (old,) = site.serve()
    change_user_data(zk, backing_id, launched=time.time() - 1001)
    (new,) = site.serve()
    assert place(new)[0] != place(old)[0] == backing_id
    site.delete(old)
    wait_for("the old one is released", lambda: list(site.backing()) == [place(new)[0]])
    site.delete(new)
    site.end()
    change_user_data(zk, place(new)[0], idle_since=time.time() - 1001)
    make_site({"grace-time": 1000}).wait_empty()


def test_gone_while_in_use(make_site: MakeSite, zk: MemoryZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    """T-12: deleted by another: nothing new is put on it, and those who are on it can be deleted."""
    site = make_site()
    (node,) = site.serve()
    backing_id = place(node)[0]
    with caplog.at_level(logging.WARNING):
        zk.deleteRawNode(backing_id)
        site.pass_now()
    assert f"Backing node {backing_id} does not exist any more, although nodes are on it: {node.id}" in caplog.text
    (other,) = site.serve()
    assert place(other)[0] != backing_id
    site.delete(node)
    assert zk.getNode(node.key) is None


@pytest.mark.parametrize(
    ("state", "user_data", "allocated_to"),
    [
        (states.READY, None, "100-0000009999"),
        (states.IN_USE, "{broken", None),
        (states.USED, "as it was", None),
        (states.DELETING, "as it was", None),
    ],
)
def test_lock_left_behind(
    make_site: MakeSite, zk: MemoryZooKeeper, state: str, user_data: str | None, allocated_to: str | None
) -> None:
    """T-12: a launcher was killed between two writes, or the node was changed: it is unlocked when it is empty, at the
    second look.
    """
    site = make_site()
    (user,) = site.serve()
    ((backing_id, _),) = site.backing().items()
    node = zk.getNode(backing_id)
    assert node is not None
    given = node.user_data if user_data == "as it was" else user_data
    node.load({**node.to_dict(0), "state": state, "allocated_to": allocated_to, "user_data": given})
    zk.storeNode(node)
    for _ in range(2):
        site.pass_now(sweep=True)
    assert zk.isNodeLocked(node), "a node is on it"
    site.delete(user)
    site.pass_now(sweep=True)
    assert zk.isNodeLocked(node), "one look is not enough"
    site.pass_now(sweep=True)
    wait_for("it is unlocked", lambda: not zk.isNodeLocked(node))


# -- scans and losses --


class Scans:
    """In the place of the provider's: the first ``failing`` scans fail."""

    def __init__(self, failing: int) -> None:
        self.failing = failing
        self.hosts: list[str] = []

    def scan(self, host: str, *_: Any) -> Future[tuple[str, ...]]:
        self.hosts.append(host)
        future: Future[tuple[str, ...]] = Future()
        if len(self.hosts) <= self.failing:
            future.set_exception(ScanFailed(f"{host} does not answer"))
        else:
            future.set_result(("ssh-rsa BBBB",))
        return future

    def stop(self) -> None:
        return

    join = stop


def test_scan_fails(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """T-11: marked failed, nothing new on it, the launch goes elsewhere, and it is released when it is empty."""
    site = make_site({"host-key-checking": True})
    scans: Any = Scans(0)
    site.provider.scans = scans
    (first,) = site.serve()
    scans.failing = 2
    (second,) = site.serve()
    failed, used = place(first)[0], place(second)[0]
    assert {backing_id: data["failed"] for backing_id, data in site.backing().items()} == {failed: True, used: False}
    assert [site.backing()[backing_id]["nodes"] for backing_id in (failed, used)] == [
        [first.id, None],
        [second.id, None],
    ]
    site.delete(first)
    wait_for("it is released", lambda: list(site.backing()) == [used])


def test_lost(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """T-15: an idle node on it is deleted, one in use is named, no slot of it is used, and it is released then."""
    site = make_site({"grace-time": 0, **THREE})
    idle, used = site.serve("small", "small")
    idle.allocated_to = None
    used.state = states.IN_USE
    for node in (idle, used):
        zk.storeNode(node)
    lost = place(idle)[0]
    change_user_data(zk, lost, failed=True, lost=["Spot", "the cloud wanted it back"])
    wait_for("the idle one is deleted", lambda: state_of(zk, idle.key) == states.DELETING)
    found = {}

    def named() -> bool:
        site.provider.cleanupLeakedResources()
        found.update({loss.node_id: (loss.code, loss.text) for loss in site.provider.lostInstances()})
        return len(found) == 2

    wait_for("both are named", named)
    text = f"backing node {lost} is lost: the cloud wanted it back; the node is"
    assert found == {idle.key: ("Spot", f"{text} deleted"), used.key: ("Spot", f"{text} in-use")}
    site.provider.cleanupLeakedResources()
    assert (state_of(zk, used.key), site.provider.lostInstances()) == (states.IN_USE, [])
    (other,) = site.serve()
    assert place(other)[0] != lost
    site.delete(idle, used)
    wait_for("it is released", lambda: zk.getNode(lost) is None)


# -- reload and end --
