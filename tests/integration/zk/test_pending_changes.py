# SPDX-License-Identifier: Apache-2.0
"""Changes of nodes that wait for a lock (WP-101), on a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.exceptions import ZKConnectionError, ZKTooLarge
from nodepool.model.node import Node
from nodepool.web import changes
from nodepool.web.answers import ApiProblem
from nodepool.web.changes import LOOK_SECONDS, MOST_SECONDS, Actions, AlreadyPending, PendingChanges, Wish
from nodepool.zk import locks
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.maintenance_store import MaintenanceStore
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.kazoo_lock import Competitor
from tests.support.manual_clock import ManualClock
from tests.support.pool_znodes import PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

WISH = Wish("alice", "why")


class Place:
    """A daemon's actions, a node, and somebody who has its lock."""

    def __init__(self, client: ZooKeeperClient, znodes: PoolZnodes) -> None:
        self.cache = NodepoolCache(client)
        assert self.cache.wait_ready(30)
        self.zk = ZooKeeper(client, self.cache)
        self.znodes = znodes
        self.clock = ManualClock()
        self.told: list[tuple[str, str]] = []
        self.pending = PendingChanges(
            self.zk, self.cache.nodes, lambda change, text: self.told.append((change.what, text)), self.clock
        )
        self.actions = Actions(self.zk, MaintenanceStore(client), self.pending)
        self.node_id = znodes.add_node("in-use", type=["small"], provider="p", pool="main")
        wait_for("the node is known", lambda: self.cache.nodes.get(self.node_id) is not None)
        self.lock_dir = f"/nodepool/nodes/{self.node_id}/lock"
        self.zuul = Competitor(znodes.kazoo)
        self.lock = self.zuul.hold(self.lock_dir)

    @property
    def state(self) -> str:
        node = self.znodes.node(self.node_id)
        assert node is not None
        return str(node["state"])

    def look_until(self, what: str, condition: Callable[[], object]) -> None:
        """Looks as often as there is news; the cache may be a moment behind."""

        def looked() -> object:
            self.pending.look()
            return condition()

        wait_for(what, looked)


@pytest.fixture
def place(client: ZooKeeperClient, znodes: PoolZnodes) -> Place:
    return Place(client, znodes)


@pytest.mark.parametrize(("what", "state"), [("hold", "hold"), ("delete", "deleting")])
def test_as_soon_as_the_lock_is_free(place: Place, what: str, state: str) -> None:
    """WP-101: before somebody who asks for the lock later."""
    news: list[int] = []
    place.pending.on_news = lambda: news.append(1)
    assert getattr(place.actions, what)(place.node_id, WISH, when_free=True) is False
    change = place.pending.of_node(place.node_id)
    assert change is not None
    assert (change.what, change.wish, change.until - change.since) == (what, WISH, MOST_SECONDS)
    later = place.zuul.wait_for_lock(place.lock_dir)
    place.pending.look()
    assert place.state == "in-use"
    place.znodes.change_node(place.node_id, state="used")
    news.clear()
    place.lock.release()
    wait_for("it hears of that", lambda: news)
    place.look_until("it is changed", lambda: place.pending.idle)
    assert place.state == state
    assert place.told == [(what, "made")]
    assert later.wait(30)


def test_free_already(place: Place) -> None:
    """WP-101: as without ``when_free``."""
    place.lock.release()
    assert place.actions.hold(place.node_id, WISH, when_free=True) is True
    assert (place.state, place.pending.idle, place.told) == ("hold", True, [])


def test_without_it_is_told_who_has_the_lock(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-95"""
    monkeypatch.setattr("nodepool.web.changes.LOCK_SECONDS", 0.1)
    with pytest.raises(ApiProblem, match="or with when_free"):
        place.actions.hold(place.node_id, WISH)


def test_deleted_meanwhile(place: Place) -> None:
    """WP-101: a hold does not keep a node that is being deleted."""
    place.actions.hold(place.node_id, WISH, when_free=True)
    place.znodes.change_node(place.node_id, state="deleting")
    place.lock.release()
    place.look_until("it is given up", lambda: place.pending.idle)
    assert place.state == "deleting"
    assert place.told == [("hold", "given up: the node is being deleted")]
    assert place.zuul.may_take(place.lock_dir)


def test_gone_meanwhile(place: Place) -> None:
    """WP-101: and nothing is left of it."""
    place.actions.delete(place.node_id, WISH, when_free=True)
    place.znodes.vanish(place.node_id)
    place.look_until("it is given up", lambda: place.pending.idle)
    assert place.told == [("delete", "given up: the node is gone")]
    assert place.znodes.node(place.node_id) is None


def test_withdrawn(place: Place) -> None:
    """WP-101"""
    place.actions.hold(place.node_id, WISH, when_free=True)
    place.actions.withdraw(place.node_id, Wish("bob", ""))
    assert place.pending.idle
    assert len(place.znodes.node_lockers(place.node_id)) == 1
    with pytest.raises(ApiProblem, match="No change"):
        place.actions.withdraw(place.node_id, WISH)


def test_too_old(place: Place) -> None:
    """WP-101: after 24 hours the queue is left."""
    place.actions.hold(place.node_id, WISH, when_free=True)
    place.clock.pass_seconds(MOST_SECONDS)
    place.pending.look()
    assert place.told == [("hold", "given up after 24 hours: the lock was never free")]
    assert len(place.znodes.node_lockers(place.node_id)) == 1


def test_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-101: one for each node, and so many together."""
    place.actions.hold(place.node_id, WISH, when_free=True)
    with pytest.raises(ApiProblem, match="hold waits for the lock already"):
        place.actions.delete(place.node_id, WISH, when_free=True)
    with pytest.raises(AlreadyPending):
        place.pending.add(changes.PendingChange(place.node_id, "delete", WISH, lambda _node: None))
    monkeypatch.setattr(changes, "MOST_PENDING", 1)
    other = place.znodes.add_node("in-use", type=["small"], provider="p", pool="main")
    place.zuul.hold(f"/nodepool/nodes/{other}/lock")
    with pytest.raises(ApiProblem) as refused:
        place.actions.delete(other, WISH, when_free=True)
    assert refused.value.status == 429


def test_another_session(place: Place, zookeeper: ZooKeeperServer) -> None:
    """WP-101: its place is gone with the session; it gets another one."""
    place.actions.delete(place.node_id, WISH, when_free=True)
    expire_session(zookeeper.plain_hosts(), place.zk.client.kazoo.client_id)
    wait_for("the new session", lambda: place.zk.client.session_epoch == 1 and place.zk.client.connected)
    place.look_until("it stands there again", lambda: len(place.znodes.node_lockers(place.node_id)) == 2)
    place.lock.release()
    place.look_until("it is changed", lambda: place.pending.idle)
    assert place.state == "deleting"


def test_answer_is_lost(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-101: a place in the queue of which nobody knew would keep the lock for as long as the daemon runs."""
    join = locks.join

    def lost(client: ZooKeeperClient, lock_dir: str, prefix: str, identifier: str) -> locks.ZkLock:
        join(client, lock_dir, prefix, identifier)
        raise ZKConnectionError("no answer")

    monkeypatch.setattr(locks, "join", lost)
    assert place.actions.delete(place.node_id, WISH, when_free=True) is False
    monkeypatch.setattr(locks, "join", join)
    place.lock.release()
    place.look_until("it is changed", lambda: place.pending.idle)
    assert place.state == "deleting"
    assert place.znodes.node_lockers(place.node_id) == []


def test_withdrawn_without_an_answer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-101: nobody knows of the place, and it is left all the same."""
    join = locks.join

    def lost(client: ZooKeeperClient, lock_dir: str, prefix: str, identifier: str) -> locks.ZkLock:
        join(client, lock_dir, prefix, identifier)
        raise ZKConnectionError("no answer")

    monkeypatch.setattr(locks, "join", lost)
    assert place.actions.delete(place.node_id, WISH, when_free=True) is False
    place.actions.withdraw(place.node_id, WISH)
    assert place.pending.idle
    assert len(place.znodes.node_lockers(place.node_id)) == 1


def test_record_is_gone_before_the_cache_knows_the_place(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-101: whoever needs the rest of the node, to remove it, is not kept from it."""
    place.actions.hold(place.node_id, WISH, when_free=True)
    monkeypatch.setattr(place.cache.nodes, "contenders", lambda _node_id: [])
    monkeypatch.setattr(place.zk, "getNode", lambda _node_id: None)
    place.pending.look()
    assert place.told == [("hold", "given up: the node is gone")]
    assert len(place.znodes.node_lockers(place.node_id)) == 1


def test_node_that_cannot_be_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-101: it would be the same again and again."""

    def refuse(_node: Node) -> None:
        raise ZKTooLarge("too many bytes")

    place.actions.hold(place.node_id, WISH, when_free=True)
    monkeypatch.setattr(place.zk, "storeNode", refuse)
    place.lock.release()
    place.look_until("it is given up", lambda: place.pending.idle)
    assert place.told == [("hold", "given up: too many bytes")]
    assert place.znodes.node_lockers(place.node_id) == []


def test_the_daemon_stops(place: Place) -> None:
    """WP-101"""
    place.actions.hold(place.node_id, WISH, when_free=True)
    place.pending.stop()
    assert place.told == [("hold", "given up: the daemon stops")]
    assert len(place.znodes.node_lockers(place.node_id)) == 1


def test_a_mistake_ends_only_its_change(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """WP-101: it would be the same again, with the lock of the node in between."""
    tried: list[int] = []

    def broken(_node: Node) -> None:
        tried.append(1)
        raise ValueError("broken")

    other = place.znodes.add_node("in-use", type=["small"], provider="p", pool="main")
    lock = place.zuul.hold(f"/nodepool/nodes/{other}/lock")
    place.pending.add(changes.PendingChange(place.node_id, "hold", WISH, broken))
    place.actions.delete(other, WISH, when_free=True)
    place.lock.release()
    lock.release()
    place.look_until("both are over", lambda: place.pending.idle)
    assert "Error in pending hold of node" in caplog.text
    assert (place.state, tried) == ("in-use", [1])
    assert sorted(place.told) == [("delete", "made"), ("hold", "given up: broken")]
    assert place.znodes.node_lockers(place.node_id) == []
    assert LOOK_SECONDS < MOST_SECONDS
