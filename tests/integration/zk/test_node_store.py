# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.nodes: write, lock, remove (reference/zookeeper 5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.exceptions import NotEmptyError

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKLockException
from nodepool.model.node import Node
from nodepool.zk import locks, paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.locks import ZkLock
from nodepool.zk.nodes import NodeStore
from nodepool.zk.transactions import TransactionFailed
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.records import id_of
from tests.support.wait import wait_for


@pytest.fixture
def store(nodes: NodeStore) -> NodeStore:
    return nodes


@pytest.fixture
def node(store: NodeStore) -> Node:
    made = Node("small")
    made.provider = "cloud"
    store.create(made)
    return made


def settled(store: NodeStore, node: Node, *, locked: bool) -> None:
    """Returns when the store's view of the lock is as it is."""
    wait_for("the lock is seen", lambda: store.is_locked(id_of(node)) is locked)


# -- reading and writing


def test_creation(store: NodeStore, znodes: PoolZnodes) -> None:
    """The id is the bare sequence; the root is made when it is missing; times are set."""
    for number in range(2):
        node = Node("small")
        store.create(node)
        assert (node.id, node.version) == (f"{number:010}", 0)
    assert znodes.children(paths.NODES) == ["0000000000", "0000000001"]
    written = znodes.node("0000000000")
    assert written is not None
    assert (written["state"], written["state_time"], written["created_time"]) == ("init", 1234.5, 1234.5)


def test_save(store: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    node.state = "building"
    store.save(node)
    node.comment = "more"
    store.save(node)
    written = znodes.node(id_of(node))
    assert written is not None
    assert (written["state"], written["comment"], node.version) == ("building", "more", 2)


def test_save_is_fenced(store: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """A launcher that was stopped past its session must not overwrite what its successor did."""
    znodes.change_node(id_of(node), comment="successor")
    node.state = "building"
    with pytest.raises(ZKConflict):
        store.save(node)
    written = znodes.node(id_of(node))
    assert written is not None
    assert (written["state"], written["comment"]) == ("init", "successor")
    znodes.kazoo.delete(paths.node(id_of(node)))
    with pytest.raises(ZKConflict):
        store.save(node)
    assert znodes.node(id_of(node)) is None


# -- locks


def test_lock_and_unlock(store: NodeStore, node: Node, competitor: Competitor) -> None:
    store.lock(node, blocking=False, identifier="me")
    assert store.contenders(id_of(node)) == ["me"]
    settled(store, node, locked=True)
    assert store.locked_ids([id_of(node), "0000009999"]) == {node.id}
    assert not competitor.may_take(paths.node_lock(id_of(node)))
    store.unlock(node)
    assert node.lock is None
    settled(store, node, locked=False)
    with pytest.raises(ZKLockException):
        store.unlock(node)


def test_lock_of_somebody_else(store: NodeStore, node: Node, competitor: Competitor) -> None:
    competitor.hold(paths.node_lock(id_of(node)))
    with pytest.raises(ZKLockException):
        store.lock(node, blocking=False)
    with pytest.raises(ZKLockException):
        store.lock(node, timeout=0.05)
    assert node.lock is None
    assert store.contenders(id_of(node)) == ["zuul"], "our contender is gone"


def test_contenders_in_order_and_force_unlock(
    store: NodeStore, node: Node, znodes: PoolZnodes, client: ZooKeeperClient
) -> None:
    """The lowest sequence holds the lock, whatever its name."""
    lock_dir = paths.node_lock(id_of(node))
    for name, identifier in (("ffff__lock__", "first"), ("0000__lock__", "second")):
        znodes.kazoo.create(f"{lock_dir}/{name}", identifier.encode(), sequence=True, makepath=True)
    assert store.contenders(id_of(node)) == ["first", "second"]
    store.force_unlock(node)
    assert store.contenders(id_of(node)) == ["second"]
    store.force_unlock(node)
    store.force_unlock(node)
    settled(store, node, locked=False)


# -- fenced writes: lock_and_save, save_unlocked


Write = Callable[[NodeStore, Node], None]
FENCED: list[Write] = [NodeStore.lock_and_save, NodeStore.save_unlocked]


@pytest.mark.parametrize("write", FENCED)
@pytest.mark.parametrize("lock_dir", ["missing", "there", "was there"])
def test_write_of_a_free_node(
    store: NodeStore, node: Node, znodes: PoolZnodes, competitor: Competitor, write: Write, lock_dir: str
) -> None:
    """Whether the lock directory exists or not, and also when our view of that is wrong."""
    path = paths.node_lock(id_of(node))
    if lock_dir != "missing":
        znodes.kazoo.create(path)
        wait_for("the directory is seen", lambda: store.has_lock_dir(id_of(node)))
    if lock_dir == "was there":
        znodes.kazoo.delete(path)
    node.state = "building"
    write(store, node)
    written = znodes.node(id_of(node))
    assert written is not None
    assert (written["state"], node.version) == ("building", 1)
    assert competitor.may_take(path) is (write is NodeStore.save_unlocked)
    if node.lock is not None:
        store.unlock(node)
        assert competitor.may_take(path)


@pytest.mark.parametrize("write", FENCED)
@pytest.mark.parametrize("missing", [True, False])
def test_view_of_the_lock_dir_is_wrong(
    store: NodeStore, node: Node, znodes: PoolZnodes, write: Write, missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not missing:
        znodes.kazoo.create(paths.node_lock(id_of(node)))
    monkeypatch.setattr(store, "has_lock_dir", lambda node_id: missing)
    node.state = "building"
    write(store, node)
    assert znodes.node_lockers(id_of(node)) == ([] if node.lock is None else [node.lock.path and _name(node)])


def _name(node: Node) -> str:
    assert isinstance(node.lock, ZkLock)
    return node.lock.contender.rpartition("/")[2]


@pytest.mark.parametrize("write", FENCED)
def test_held_lock_fails_the_whole_write(
    store: NodeStore, node: Node, znodes: PoolZnodes, competitor: Competitor, write: Write
) -> None:
    """A node is never given to two."""
    held = competitor.hold(paths.node_lock(id_of(node)))
    node.state = "building"
    with pytest.raises(TransactionFailed) as caught:
        write(store, node)
    assert isinstance(caught.value.error, NotEmptyError) or caught.value.lock_dir_mismatch
    written = znodes.node(id_of(node))
    assert written is not None
    assert (written["state"], node.version, node.lock) == ("init", 0, None)
    assert len(znodes.node_lockers(id_of(node))) == 1
    assert held.is_acquired
    settled(store, node, locked=True)


@pytest.mark.parametrize("write", FENCED)
def test_changed_node_fails_the_whole_write(store: NodeStore, node: Node, znodes: PoolZnodes, write: Write) -> None:
    znodes.change_node(id_of(node), comment="foreign")
    node.state = "building"
    with pytest.raises(ZKConflict):
        write(store, node)
    assert znodes.node_lockers(id_of(node)) == []
    assert node.lock is None


@pytest.mark.parametrize("write", FENCED)
def test_gone_node_is_not_made_again(store: NodeStore, node: Node, znodes: PoolZnodes, write: Write) -> None:
    znodes.kazoo.delete(paths.node(id_of(node)))
    with pytest.raises(ZKConflict):
        write(store, node)
    assert znodes.children(paths.NODES) == []


def test_lock_under_another_one(store: NodeStore, node: Node, client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """N-3, N-6: nothing is written when that one is lost, whether the lock directory is there or not."""
    under = locks.acquire(client, paths.request_lock("500-0000000001"))
    locks.release(client, under)
    node.state = "building"
    for missing in (True, False):
        if not missing:
            znodes.kazoo.create(paths.node_lock(id_of(node)))
            wait_for("the directory is seen", lambda: store.has_lock_dir(id_of(node)))
        with pytest.raises(ZKConflict):
            store.lock_and_save(node, under=under)
        assert (node.version, node.lock, znodes.node_lockers(id_of(node))) == (0, None, [])
    store.lock_and_save(node, under=locks.acquire(client, paths.request_lock("500-0000000001")))
    assert node.lock is not None


def test_waiter_gets_the_lock_when_we_release(store: NodeStore, node: Node, competitor: Competitor) -> None:
    store.lock_and_save(node)
    taken = competitor.wait_for_lock(paths.node_lock(id_of(node)))
    assert not taken.is_set()
    store.unlock(node)
    assert taken.wait(30)


# -- no connection


def test_closed_connection(store: NodeStore, node: Node, client: ZooKeeperClient) -> None:
    """Every call says that the outcome is unknown; none hangs, none leaks Kazoo's errors."""
    store.lock_and_save(node)
    client.kazoo.stop()
    calls: list[Callable[[], object]] = [
        *(store.ids, lambda: list(store.iterate()), lambda: store.get(id_of(node))),
        *(lambda: store.save(node), lambda: store.create(Node()), lambda: store.refresh(node)),
        *(lambda: store.save_unlocked(node), lambda: store.lock_and_save(node), lambda: store.lock(node)),
        *(lambda: store.unlock(node), lambda: store.remove(node), lambda: store.remove_raw(id_of(node))),
        *(lambda: store.contenders(id_of(node)), lambda: store.force_unlock(node)),
        lambda: store.remove_empty(id_of(node)),
    ]
    for call in calls:
        with pytest.raises(ZKConnectionError):
            call()


# -- ids out of JSON that are no names
