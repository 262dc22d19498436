# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.nodes: nodes go, with their locks, and others take their places."""

from __future__ import annotations

import pytest

from nodepool.exceptions import ZKConflict, ZKLockException
from nodepool.model.node import Node
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodes import NodeStore
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import READY_NODE, PoolZnodes
from tests.support.records import id_of
from tests.support.session_loss import expire_session
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture
def store(nodes: NodeStore) -> NodeStore:
    return nodes


@pytest.fixture
def node(store: NodeStore) -> Node:
    made = Node("small")
    store.create(made)
    return made


def test_remove(store: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    store.lock_and_save(node)
    store.remove(node)
    assert node.lock is None
    assert znodes.children(paths.NODES) == []


def test_remove_with_replacement(store: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """One write: no moment without the one and without the other."""
    store.lock(node)
    new = Node("small")
    new.state = "ready"
    store.remove(node, new)
    assert znodes.children(paths.NODES) == [new.id]
    assert new.id == "0000000001"
    assert new.version == 0


def test_remove_while_somebody_waits(store: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """reference/zookeeper 3: `deleted` is written first, so that who wins a lock on a dying node can tell."""
    store.lock_and_save(node)
    znodes.kazoo.create(f"{paths.node_lock(id_of(node))}/ffff__lock__", b"waits", sequence=True)
    store.remove(node)
    assert (node.state, node.version, node.lock) == ("deleted", 2, None)
    assert znodes.children(paths.NODES) == []


def test_replacement_while_somebody_waits(
    store: NodeStore, node: Node, znodes: PoolZnodes, competitor: Competitor
) -> None:
    """Then it is left for later: a host must not be there twice."""
    store.lock_and_save(node)
    taken = competitor.wait_for_lock(paths.node_lock(id_of(node)))
    new = Node("small")
    with pytest.raises(ZKConflict):
        store.remove(node, new)
    assert new.id is None
    assert znodes.children(paths.NODES) == [node.id]
    store.unlock(node)
    assert taken.wait(30)


def test_remove_after_our_lock_is_lost(
    store: NodeStore, node: Node, znodes: PoolZnodes, client: ZooKeeperClient, zookeeper: ZooKeeperServer
) -> None:
    """Fencing: whoever took over owns the node now."""
    store.lock_and_save(node)
    expire_session(zookeeper.plain_hosts(), client.kazoo.client_id)
    wait_for("the new session", lambda: client.session_epoch == 1 and client.connected)
    for replacement in (None, Node("small")):
        with pytest.raises(ZKConflict):
            store.remove(node, replacement)
    assert znodes.children(paths.NODES) == [node.id]


def test_remove_without_a_lock(store: NodeStore, node: Node) -> None:
    with pytest.raises(ZKLockException):
        store.remove(node)


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("replace", [True, False])
def test_remove_unlocked(store: NodeStore, node: Node, znodes: PoolZnodes, exists: bool, replace: bool) -> None:
    if exists:
        znodes.kazoo.create(paths.node_lock(id_of(node)))
    new = Node("small") if replace else None
    store.send_remove_unlocked(node, exists, new).get(30)
    assert znodes.children(paths.NODES) == ([new.id] if new is not None else [])


@pytest.mark.parametrize("exists", [True, False])
def test_remove_unlocked_that_is_locked(
    store: NodeStore, node: Node, znodes: PoolZnodes, competitor: Competitor, exists: bool
) -> None:
    competitor.hold(paths.node_lock(id_of(node)))
    new = Node("small")
    with pytest.raises(ZKConflict):
        store.send_remove_unlocked(node, exists, new).get(30)
    assert znodes.children(paths.NODES) == [node.id]
    assert new.id is None


def test_remove_unlocked_that_changed(store: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    znodes.change_node(id_of(node), state="ready")
    with pytest.raises(ZKConflict):
        store.send_remove_unlocked(node, False, None).get(30)
    assert znodes.children(paths.NODES) == [node.id]


def test_remove_raw(store: NodeStore, node: Node, znodes: PoolZnodes, competitor: Competitor) -> None:
    """CLI erase: whatever its data and locks."""
    znodes.kazoo.create(f"{paths.node_lock(id_of(node))}/x", b"", makepath=True)
    store.remove_raw(id_of(node))
    assert znodes.children(paths.NODES) == []
    store.remove_raw(id_of(node))


@pytest.mark.parametrize("emptied", [True, False])
@pytest.mark.parametrize("lock_dir", [True, False])
def test_remove_empty(store: NodeStore, znodes: PoolZnodes, lock_dir: bool, emptied: bool) -> None:
    """C-8: made without data, or emptied by a hand."""
    empty = znodes.create_node(READY_NODE if emptied else b"")
    if emptied:
        znodes.kazoo.set(paths.node(empty), b"")
    if lock_dir:
        znodes.kazoo.create(paths.node_lock(empty))
    assert store.remove_empty(empty)
    assert znodes.children(paths.NODES) == []
    assert not store.remove_empty(empty)


def test_remove_empty_leaves_what_is_used(store: NodeStore, znodes: PoolZnodes, competitor: Competitor) -> None:
    """C-8: locked, or filled meanwhile."""
    locked, filled = znodes.create_node(b""), znodes.create_node(b"")
    competitor.hold(paths.node_lock(locked))
    znodes.kazoo.set(paths.node(filled), READY_NODE)
    assert not store.remove_empty(locked)
    assert not store.remove_empty(filled)
    assert znodes.children(paths.NODES) == [locked, filled]
