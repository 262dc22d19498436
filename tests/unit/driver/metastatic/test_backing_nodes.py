# SPDX-License-Identifier: Apache-2.0
"""Backing nodes are released, fail, and are left behind (rules T-8 to T-12)."""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest

from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.driver.metastatic import allocator
from nodepool.exceptions import ZKConnectionError
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.backing_pool import BackingPool
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.unit.driver.metastatic.conftest import NEVER, OWNER, MakeSite, Site, place


def change_user_data(zk: MemoryZooKeeper, backing_id: str, **changes: Any) -> None:
    """As another launcher would."""
    node = zk.getNode(backing_id)
    assert node is not None
    node.user_data = json.dumps({**json.loads(node.user_data), **changes})
    zk.storeNode(node)


def backing_node(site: Site) -> Node:
    (backing_id,) = site.backing()
    node = site.zk.getNode(backing_id)
    assert node is not None
    return node


# -- release --


def test_released_when_empty(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """T-8: `used`, unlocked, in one write; so the other provider deletes it."""
    site = make_site({"grace-time": 0})
    first, second = site.serve("small", "small")
    site.delete(first)
    site.pass_now()
    assert site.backing()
    site.delete(second)
    wait_for("nothing is left", lambda: not list(zk.nodeIterator()))


def test_many_are_released(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """T-8: a few in each pass, and in the end all."""
    monkeypatch.setattr(allocator, "MOST_RELEASES", 2)
    site = make_site({"grace-time": 0, "max-parallel-jobs": 1})
    site.delete(*site.serve(*["small"] * 7))
    wait_for("nothing is left", lambda: not list(zk.nodeIterator()))


def test_grace_and_retention(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """T-8: neither before grace-time nor before min-retention-time is over."""
    for label in ({"grace-time": NEVER}, {"grace-time": 0, "min-retention-time": NEVER}):
        site = make_site(label)
        site.delete(*site.serve())
        site.pass_now()
        assert len(site.backing()) == 1
        change_user_data(zk, next(iter(site.backing())), failed=True)
        wait_for("nothing is left", lambda: not list(zk.nodeIterator()))
        site.end()


def test_grace_goes_on_after_a_restart(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-6, T-8: since when a backing node is empty is noted, and forgotten when it is used again."""
    monkeypatch.setattr(allocator, "NOTE_IDLE_SECONDS", 0.0)
    site = make_site({"grace-time": 1000})
    (node,) = site.serve()
    site.delete(node)
    (backing_id,) = site.backing()
    wait_for("it is noted", lambda: site.backing()[backing_id]["idle_since"] is not None)
    (node,) = site.serve()
    assert site.backing()[backing_id]["idle_since"] is None
    site.delete(node)
    wait_for("it is noted again", lambda: site.backing()[backing_id]["idle_since"] is not None)
    site.end()
    change_user_data(zk, backing_id, idle_since=time.time() - 900)
    site = make_site({"grace-time": 1000})
    site.pass_now()
    assert site.backing()
    site.end()
    change_user_data(zk, backing_id, idle_since=time.time() - 1001)
    make_site({"grace-time": 1000})
    wait_for("nothing is left", lambda: not list(zk.nodeIterator()))


def test_max_age(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """T-9: no new slots, and no grace."""
    site = make_site({"max-age": 1000})
    (old,) = site.serve()
    change_user_data(zk, place(old)[0], launched=time.time() - 1001)
    (new,) = site.serve()
    assert place(new)[0] != place(old)[0]
    site.delete(old)
    wait_for("the old one is released", lambda: list(site.backing()) == [place(new)[0]])


def test_label_gone(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """T-10: at once when empty; what is left of an older configuration as well."""
    tiny = {"name": "tiny", "backing-label": "big", "max-parallel-jobs": 2, "grace-time": NEVER}
    site = make_site(None, tiny)
    (node,) = site.serve("tiny")
    site.delete(*site.serve("small"))
    site.end()
    again = make_site()
    again.pass_now()
    assert {data["label"] for data in again.backing().values()} == {"tiny", "small"}
    again.delete(node)
    wait_for("it is released", lambda: {data["label"] for data in again.backing().values()} == {"small"})


def test_other_backing_label(make_site: MakeSite) -> None:
    """T-10: the label is there, but it shall be on other nodes."""
    site = make_site()
    (node,) = site.serve()
    site.end()
    again = make_site({"backing-label": "huge"})
    (other,) = again.serve()
    assert place(other)[0] != place(node)[0]
    again.delete(node)
    wait_for("it is released", lambda: list(again.backing()) == [place(other)[0]])


def test_gone_while_in_use(make_site: MakeSite, zk: MemoryZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    """T-12: deleted by somebody else: nothing new is put on it, and those who are on it can be deleted."""
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


def test_answer_to_the_release_was_lost(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-8: written or not, it is released."""
    save_and_release = zk.nodes.save_and_release
    lost: list[str | None] = []

    def lose(node: Node, contender: str) -> None:
        if len(lost) % 2:
            save_and_release(node, contender)
        lost.append(node.id)
        if len(lost) <= 2:
            raise ZKConnectionError("connection lost")

    monkeypatch.setattr(zk.nodes, "save_and_release", lose)
    site = make_site({"grace-time": 0})
    site.delete(*site.serve())
    wait_for("nothing is left", lambda: not list(zk.nodeIterator()))
    site.pass_now()
    assert len(lost) == 2


# -- key scan --


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

    def join(self) -> None:
        return


def test_scan_fails(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """T-11: marked failed, nothing new on it, the launch goes elsewhere, and it is released when it is empty."""
    site = make_site({"host-key-checking": True})
    scans: Any = Scans(0)
    site.provider.scans = scans
    (first,) = site.serve()
    scans.failing = 2
    (second,) = site.serve()
    failed, used = place(first)[0], place(second)[0]
    assert failed != used
    assert {backing_id: data["failed"] for backing_id, data in site.backing().items()} == {failed: True, used: False}
    assert site.backing()[failed]["nodes"] == [first.id, None]
    assert site.backing()[used]["nodes"] == [second.id, None]
    site.delete(first)
    wait_for("it is released", lambda: list(site.backing()) == [used])


def test_lost(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """T-15: an idle node on it is deleted, one in use is named, no slot of it is used, and it is released then."""
    site = make_site({"grace-time": 0, "max-parallel-jobs": 3})
    idle, used = site.serve("small", "small")
    idle.allocated_to = None
    used.state = states.IN_USE
    for node in (idle, used):
        zk.storeNode(node)
    lost = place(idle)[0]
    change_user_data(zk, lost, failed=True, lost=["Spot", "the cloud wanted it back"])

    def state(node: Node) -> str | None:
        found = zk.getNode(node.key)
        return None if found is None else found.state

    wait_for("the idle one is deleted", lambda: state(idle) == states.DELETING)
    found = {}

    def named() -> bool:
        site.provider.cleanupLeakedResources()
        found.update({loss.node_id: loss for loss in site.provider.lostInstances()})
        return len(found) == 2

    wait_for("both are named", named)
    text = f"backing node {lost} is lost: the cloud wanted it back; the node is"
    assert {loss.node_id: (loss.code, loss.text) for loss in found.values()} == {
        idle.key: ("Spot", f"{text} deleted"),
        used.key: ("Spot", f"{text} in-use"),
    }
    site.provider.cleanupLeakedResources()
    assert (state(used), site.provider.lostInstances()) == (states.IN_USE, [])
    (other,) = site.serve()
    assert place(other)[0] != lost
    site.delete(idle, used)
    wait_for("it is released", lambda: zk.getNode(lost) is None)


def test_all_scans_fail(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """T-11, L-6: as often as launch-retries says; every backing node goes."""
    site = make_site({"host-key-checking": True})
    scans: Any = Scans(99)
    site.provider.scans = scans
    site.fail()
    assert len(set(scans.hosts)) == len(scans.hosts) == 2
    (node,) = [node for node in zk.nodeIterator() if node.provider == "shared"]
    site.delete(node)
    wait_for("nothing is left", lambda: not list(zk.nodeIterator()))


def test_scan_fails_and_the_node_goes(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-11: its backing node is marked also when it is gone before the next pass."""
    site = make_site({"host-key-checking": True})
    scans: Any = Scans(99)
    site.provider.scans = scans
    scan, run_once = scans.scan, site.allocator.run_once
    passes = threading.Event()
    passes.set()

    def last_scan(*arguments: Any) -> Any:
        if len(scans.hosts) == 1:
            passes.clear()
        return scan(*arguments)

    def pass_later() -> float:
        assert passes.wait(DEADLINE_SECONDS)
        return run_once()

    monkeypatch.setattr(scans, "scan", last_scan)
    monkeypatch.setattr(site.allocator, "run_once", pass_later)
    site.fail()
    (node,) = [node for node in zk.nodeIterator() if node.provider == "shared"]
    site.delete(node)
    assert zk.getNode(node.key) is None
    passes.set()
    wait_for("nothing is left", lambda: not list(zk.nodeIterator()))


# -- what was left behind --


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
    """An older launcher was killed between two writes, or somebody changed the node: it is unlocked."""
    site = make_site({"grace-time": NEVER})
    (user,) = site.serve()
    node = backing_node(site)
    changed = {"state": state, "allocated_to": allocated_to}
    node.load({**node.to_dict(0), **changed, "user_data": node.user_data if user_data == "as it was" else user_data})
    zk.storeNode(node)
    for _ in range(2):
        site.allocator.sweep_soon()
        site.pass_now()
    assert zk.isNodeLocked(node), "somebody is on it"
    site.delete(user)
    site.allocator.sweep_soon()
    site.pass_now()
    assert zk.isNodeLocked(node), "one sweep is not enough"
    site.allocator.sweep_soon()
    site.pass_now()
    wait_for("it is unlocked", lambda: not zk.isNodeLocked(node))


def test_claim_of_an_older_launcher_under_way(make_site: MakeSite, zk: MemoryZooKeeper, pool: BackingPool) -> None:
    """Its node is `ready` and locked while its request is there: left alone."""
    pool.hold = True
    request = NodeRequest()
    request.requestor = OWNER
    zk.storeNodeRequest(request, "100")
    node = Node("big")
    node.state, node.provider, node.requestor, node.allocated_to = states.READY, "backing", OWNER, request.id
    zk.storeNode(node)
    zk.lockNode(node, ephemeral=False, identifier=OWNER)
    site = make_site()
    for _ in range(3):
        site.allocator.sweep_soon()
        site.pass_now()
    assert zk.isNodeLocked(node)
    zk.deleteNodeRequest(request)
    for _ in range(2):
        site.allocator.sweep_soon()
        site.pass_now()
    assert not zk.isNodeLocked(node)


# -- reload --


def test_replaced_provider_releases_nothing(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """G-5: from idle() on, backing nodes are the successor's."""
    site = make_site({"grace-time": 0})
    (node,) = site.serve()
    site.provider.idle()
    site.delete(node)
    site.pass_now()
    assert site.backing()
    make_site({"grace-time": 0})
    wait_for("nothing is left", lambda: not list(zk.nodeIterator()))


def test_launch_of_a_replaced_provider_goes_on(make_site: MakeSite, pool: BackingPool) -> None:
    """L-17: who waits for a backing node gets it, and the old provider ends after that."""
    pool.hold = True
    old = make_site()
    handler = old.begin()
    wait_for("a backing request", old.requests)
    old.provider.idle()
    new = make_site()
    old.provider.stop()
    pool.hold = False
    pool.look()
    (node,) = old.finish(handler)
    wait_for("the old provider has ended", lambda: not old.provider.scheduler)
    (other,) = new.serve()
    assert place(other) == (place(node)[0], 1)


def test_shutdown_takes_requests_back(make_site: MakeSite, pool: BackingPool) -> None:
    """Nobody is left to use what would come."""
    pool.hold = True
    site = make_site()
    site.begin()
    wait_for("a backing request", site.requests)
    site.end()
    assert not site.requests()


def test_shutdown_takes_unanswered_requests_back(
    make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of whose creation nobody has heard would live as long as the session, and its node with it."""
    create, get_ready = zk.requests.create, zk.cache.requests.ready
    pool.hold = True

    def lose(request: NodeRequest, priority: str) -> None:
        create(request, priority)
        if request.requestor == OWNER:
            # Until the connection is back nothing can be done about it.
            get_ready.clear()
            raise ZKConnectionError("connection lost")

    monkeypatch.setattr(zk.requests, "create", lose)
    site = make_site()
    site.begin()
    wait_for("the answer is lost", site.requests)
    site.end()
    assert not site.requests()


def test_failed_scan_when_nobody_waits_any_more(make_site: MakeSite) -> None:
    """T-11, L-17: the last launch of a replaced provider finds that a backing node does not answer."""
    site = make_site()
    (node,) = site.serve()
    site.allocator.drain()
    wait_for("the allocator has ended", lambda: len(site.provider.scheduler) == 0)
    site.allocator.scan_failed(node.key)
    wait_for("it is marked", lambda: all(data["failed"] for data in site.backing().values()))
