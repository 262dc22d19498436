# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.nodes: read, write, lock, remove (reference/zookeeper 5)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.exceptions import NotEmptyError

from nodepool.exceptions import ZKConflict, ZKLockException
from nodepool.model.node import Node
from nodepool.zk import locks, paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.locks import ZkLock
from nodepool.zk.nodes import NodeStore
from nodepool.zk.transactions import TransactionFailed
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import READY_NODE, PoolZnodes
from tests.support.wait import present, wait_for


@pytest.fixture
def node(nodes: NodeStore) -> Node:
    made = Node("small")
    made.provider = "cloud"
    nodes.create(made)
    return made


def settled(nodes: NodeStore, node: Node, *, locked: bool) -> None:
    """Returns when the store's view of the lock is as it is."""
    wait_for("the lock is seen", lambda: nodes.is_locked(node.key) is locked)


def stored(znodes: PoolZnodes, node: Node) -> tuple[object, object]:
    """State and comment."""
    found = present(znodes.node(node.key))
    return found["state"], found["comment"]


# -- reading and writing


def test_creation(nodes: NodeStore, znodes: PoolZnodes) -> None:
    """The id is the bare sequence; the root is made when it is missing; times are set."""
    for number in range(2):
        node = Node("small")
        nodes.create(node)
        assert (node.id, node.version) == (f"{number:010}", 0)
    assert znodes.children(paths.NODES) == ["0000000000", "0000000001"]
    written = present(znodes.node("0000000000"))
    assert (written["state"], written["state_time"], written["created_time"]) == ("init", 1234.5, 1234.5)


def test_reading(nodes: NodeStore, node: Node, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture) -> None:
    """Bad records and a child named lock are skipped."""
    found = present(nodes.get(node.key))
    assert (found.id, found.provider, found.version, found.mzxid > 0) == (node.id, "cloud", 0, True)
    bad, empty = znodes.create_node(b"garbage"), znodes.create_node(b"")
    znodes.kazoo.create(f"{paths.NODES}/lock", b"")
    assert [nodes.get(node_id) for node_id in ("0000009999", bad)] == [None, None]
    assert f"Ignoring {paths.node(bad)}" in caplog.text
    assert [found.id for found in nodes.iterate()] == [node.id]
    assert sorted(nodes.ids()) == [node.id, bad, empty]
    assert nodes.existing([node.key, bad, "0000000099", "..", "\ud800"]) == {node.id, bad}


def test_nothing_there(client: ZooKeeperClient) -> None:
    """What cannot be a znode is not there either; no question about it ends the connection."""
    nodes = NodeStore(client, None)
    assert (nodes.ids(), list(nodes.iterate()), nodes.contenders("0000000001")) == ([], [], [])
    assert (nodes.is_locked("0000000001"), nodes.locked_ids(["0000000001"]), nodes.existing([])) == (
        False,
        set(),
        set(),
    )
    nodes.remove_raw("0000000001")
    for text in ("", ".", "..", "../nodes", "a/b", "a\0b", "\n", "\ud800", "\ufff0"):
        assert (nodes.get(text), nodes.existing([text])) == (None, set())
    assert (client.session_epoch, client.connected) == (0, True)


def test_refresh(nodes: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """The same object with new fields; a lock that is held stays."""
    nodes.lock(node)
    lock = node.lock
    node.comment = "forgotten"
    znodes.change_node(node.key, provider="other")
    nodes.refresh(node)
    assert (node.provider, node.comment, node.version, node.lock is lock) == ("other", None, 1, True)
    node.state = "building"
    nodes.save(node)
    nodes.remove_raw(node.key)
    with pytest.raises(ZKConflict, match="gone"):
        nodes.refresh(node)


def test_save_is_fenced(nodes: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """A launcher that was stopped past its session must not overwrite what its successor did."""
    for comment in ("one", "two"):
        node.comment = comment
        nodes.save(node)
    assert (node.version, stored(znodes, node)) == (2, ("init", "two"))
    znodes.change_node(node.key, comment="successor")
    node.state = "building"
    with pytest.raises(ZKConflict):
        nodes.save(node)
    assert stored(znodes, node) == ("init", "successor")
    znodes.kazoo.delete(paths.node(node.key))
    with pytest.raises(ZKConflict):
        nodes.save(node)
    assert znodes.node(node.key) is None


# -- locks


def test_lock_and_unlock(nodes: NodeStore, node: Node, competitor: Competitor) -> None:
    lock_dir = paths.node_lock(node.key)
    nodes.lock(node, blocking=False, identifier="me")
    settled(nodes, node, locked=True)
    assert (nodes.contenders(node.key), nodes.locked_ids([node.key, "0000009999"])) == (["me"], {node.id})
    assert not competitor.may_take(lock_dir)
    nodes.unlock(node)
    settled(nodes, node, locked=False)
    with pytest.raises(ZKLockException):
        nodes.unlock(node)
    held = competitor.hold(lock_dir)
    for options in ({"blocking": False}, {"timeout": 0.05}):
        with pytest.raises(ZKLockException):
            nodes.lock(node, **options)
    assert (node.lock, nodes.contenders(node.key)) == (None, ["zuul"]), "our contender is gone"
    held.release()
    nodes.lock_and_save(node)
    taken = competitor.wait_for_lock(lock_dir)
    assert not taken.is_set()
    nodes.unlock(node)
    assert taken.wait(30)


def test_contenders_in_order_and_force_unlock(nodes: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """The lowest sequence holds the lock, whatever its name."""
    for name, identifier in (("ffff__lock__", b"first"), ("0000__lock__", b"second")):
        znodes.kazoo.create(f"{paths.node_lock(node.key)}/{name}", identifier, sequence=True, makepath=True)
    assert nodes.contenders(node.key) == ["first", "second"]
    nodes.force_unlock(node)
    assert nodes.contenders(node.key) == ["second"]
    for _ in range(2):
        nodes.force_unlock(node)
    settled(nodes, node, locked=False)


# -- fenced writes: lock_and_save, save_unlocked

Write = Callable[[NodeStore, Node], None]
FENCED: list[Write] = [NodeStore.lock_and_save, NodeStore.save_unlocked]


@pytest.mark.parametrize("write", FENCED)
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_write_of_a_free_node(
    nodes: NodeStore,
    node: Node,
    znodes: PoolZnodes,
    competitor: Competitor,
    monkeypatch: pytest.MonkeyPatch,
    write: Write,
    there: bool,
    right: bool,
) -> None:
    """Whether the lock directory exists or not, and also when our view of that is wrong."""
    path = paths.node_lock(node.key)
    if there:
        znodes.kazoo.create(path)
        wait_for("the directory is seen", lambda: nodes.has_lock_dir(node.key))
    if not right:
        monkeypatch.setattr(nodes, "has_lock_dir", lambda node_id: not there)
    node.state = "building"
    write(nodes, node)
    assert (stored(znodes, node)[0], node.version) == ("building", 1)
    assert competitor.may_take(path) is (write is NodeStore.save_unlocked) is (node.lock is None)
    if isinstance(node.lock, ZkLock):
        assert znodes.node_lockers(node.key) == [node.lock.contender.rpartition("/")[2]]
        nodes.unlock(node)
        assert competitor.may_take(path)


@pytest.mark.parametrize("write", FENCED)
def test_obstacle_fails_the_whole_write(
    nodes: NodeStore, node: Node, znodes: PoolZnodes, competitor: Competitor, write: Write
) -> None:
    """A node is never given to two: it is locked, was changed, or is gone, and is not made again."""
    held = competitor.hold(paths.node_lock(node.key))
    node.state = "building"
    with pytest.raises(TransactionFailed) as caught:
        write(nodes, node)
    assert isinstance(caught.value.error, NotEmptyError) or caught.value.lock_dir_mismatch
    assert (*stored(znodes, node), node.version, node.lock) == ("init", None, 0, None)
    assert (len(znodes.node_lockers(node.key)), held.is_acquired) == (1, True)
    settled(nodes, node, locked=True)
    held.release()
    znodes.change_node(node.key, comment="foreign")
    with pytest.raises(ZKConflict):
        write(nodes, node)
    assert (stored(znodes, node), znodes.node_lockers(node.key), node.lock) == (("init", "foreign"), [], None)
    znodes.vanish(node.key)
    with pytest.raises(ZKConflict):
        write(nodes, node)
    assert znodes.children(paths.NODES) == []


def test_lock_under_another_one(nodes: NodeStore, node: Node, client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """N-3, N-6: nothing is written when that one is lost, whether the lock directory is there or not."""
    under = locks.acquire(client, paths.request_lock("500-0000000001"))
    locks.release(client, under)
    node.state = "building"
    for missing in (True, False):
        if not missing:
            znodes.kazoo.create(paths.node_lock(node.key))
            wait_for("the directory is seen", lambda: nodes.has_lock_dir(node.key))
        with pytest.raises(ZKConflict):
            nodes.lock_and_save(node, under=under)
        assert (node.version, node.lock, znodes.node_lockers(node.key)) == (0, None, [])
    nodes.lock_and_save(node, under=locks.acquire(client, paths.request_lock("500-0000000001")))
    assert node.lock is not None


# -- removal


@pytest.mark.parametrize("replace", [True, False])
def test_remove(nodes: NodeStore, node: Node, znodes: PoolZnodes, replace: bool) -> None:
    """With a replacement in one write: no moment without the one and without the other."""
    new = Node("small") if replace else None
    with pytest.raises(ZKLockException):
        nodes.remove(node, new)
    nodes.lock_and_save(node)
    nodes.remove(node, new)
    assert node.lock is None
    assert znodes.children(paths.NODES) == ([] if new is None else [new.id])
    assert new is None or (new.id, new.version) == ("0000000001", 0)


def test_remove_while_another_process_waits(
    nodes: NodeStore, node: Node, znodes: PoolZnodes, competitor: Competitor
) -> None:
    """reference/zookeeper 3: `deleted` is written first, so that who wins a lock on a dying node can tell.

    A replacement is left for later: a host must not be there twice.
    """
    nodes.lock_and_save(node)
    taken = competitor.wait_for_lock(paths.node_lock(node.key))
    new = Node("small")
    with pytest.raises(ZKConflict):
        nodes.remove(node, new)
    assert (new.id, znodes.children(paths.NODES)) == (None, [node.id])
    nodes.unlock(node)
    assert taken.wait(30)
    competitor.stop()
    nodes.lock(node)
    znodes.kazoo.create(f"{paths.node_lock(node.key)}/ffff__lock__", b"waits", sequence=True)
    nodes.remove(node)
    assert (node.state, node.version, node.lock) == ("deleted", 2, None)
    assert znodes.children(paths.NODES) == []


def test_remove_after_our_lock_is_lost(
    nodes: NodeStore, node: Node, znodes: PoolZnodes, client: ZooKeeperClient, lose_session: Callable[..., None]
) -> None:
    """Fencing: whoever took over owns the node now."""
    nodes.lock_and_save(node)
    lose_session(client)
    for replacement in (None, Node("small")):
        with pytest.raises(ZKConflict):
            nodes.remove(node, replacement)
    assert znodes.children(paths.NODES) == [node.id]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("replace", [True, False])
def test_remove_unlocked(nodes: NodeStore, node: Node, znodes: PoolZnodes, exists: bool, replace: bool) -> None:
    if exists:
        znodes.kazoo.create(paths.node_lock(node.key))
    new = Node("small") if replace else None
    nodes.send_remove_unlocked(node, exists, new).get(30)
    assert znodes.children(paths.NODES) == ([new.id] if new is not None else [])


@pytest.mark.parametrize("exists", [True, False, None])
def test_obstacle_to_remove_unlocked(
    nodes: NodeStore, node: Node, znodes: PoolZnodes, competitor: Competitor, exists: bool | None
) -> None:
    """It is locked, whatever we think of its lock directory; or it was changed."""
    if exists is None:
        znodes.change_node(node.key, state="ready")
    else:
        competitor.hold(paths.node_lock(node.key))
    new = Node("small")
    with pytest.raises(ZKConflict):
        nodes.send_remove_unlocked(node, bool(exists), new).get(30)
    assert (new.id, znodes.children(paths.NODES)) == (None, [node.id])


def test_remove_raw(nodes: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """CLI erase: whatever its data and locks."""
    znodes.kazoo.create(f"{paths.node_lock(node.key)}/x", b"", makepath=True)
    for _ in range(2):
        nodes.remove_raw(node.key)
        assert znodes.children(paths.NODES) == []


@pytest.mark.parametrize("emptied", [True, False])
@pytest.mark.parametrize("lock_dir", [True, False])
def test_remove_empty(
    nodes: NodeStore, znodes: PoolZnodes, competitor: Competitor, lock_dir: bool, emptied: bool
) -> None:
    """C-8: made without data, or emptied by a hand; what is locked, or was filled meanwhile, stays."""
    empty, locked, filled = (znodes.create_node(READY_NODE if emptied else b"") for _ in range(3))
    for node_id in (empty, locked):
        znodes.kazoo.set(paths.node(node_id), b"")
    if lock_dir:
        znodes.kazoo.create(paths.node_lock(empty))
    competitor.hold(paths.node_lock(locked))
    znodes.kazoo.set(paths.node(filled), READY_NODE)
    assert [nodes.remove_empty(node_id) for node_id in (empty, empty, locked, filled)] == [True, False, False, False]
    assert znodes.children(paths.NODES) == [locked, filled]
