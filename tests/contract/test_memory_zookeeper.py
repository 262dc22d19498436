# SPDX-License-Identifier: Apache-2.0
"""The ZooKeeper in memory and the real one answer alike, so that drivers tested with one work with the other."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from nodepool.exceptions import ZKConflict, ZKLockException
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture(params=["memory", "real"])
def zk(request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, chroot: str) -> Iterator[ZooKeeper]:
    if request.param == "memory":
        yield MemoryZooKeeper()
        return
    client = ZooKeeperClient(zookeeper.plain_hosts(chroot))
    client.connect(DEADLINE_SECONDS)
    for path in (paths.NODES, paths.REQUESTS, paths.REQUEST_LOCKS, f"{paths.COMPONENTS}/pool"):
        client.kazoo.ensure_path(path)
    cache = NodepoolCache(client)
    assert cache.wait_ready(DEADLINE_SECONDS)
    yield ZooKeeper(client, cache)
    client.disconnect()


def make_node(zk: ZooKeeper) -> Node:
    node = Node("small")
    zk.storeNode(node)
    return node


def make_request(zk: ZooKeeper) -> NodeRequest:
    request = NodeRequest()
    request.node_types = ["small"]
    zk.storeNodeRequest(request)
    return request


def test_create_and_read(zk: ZooKeeper) -> None:
    """Ids are sequence numbers of ten digits, of requests behind the priority."""
    first, second = make_node(zk), make_node(zk)
    assert [first.id, second.id] == ["0000000000", "0000000001"]
    assert sorted(zk.getNodes()) == [first.id, second.id]
    found = zk.getNode(first.key)
    assert found is not None
    assert (found.type, found.state, found.version) == (["small"], states.INIT, 0)
    assert found.created_time
    assert zk.getNode("9999999999") is None
    request = make_request(zk)
    assert request.id == "500-0000000000"
    assert zk.getNodeRequests() == [request.id]
    assert zk.getNodeRequest("500-9999999999") is None


def test_cache(zk: ZooKeeper) -> None:
    """Iterators and listeners see what was written."""
    told: list[str] = []
    zk.addNodeListener(told.append)
    node, request = make_node(zk), make_request(zk)
    wait_for("the node is in the cache", lambda: [n.id for n in zk.nodeIterator()] == [node.id])
    wait_for("the request is in the cache", lambda: [r.id for r in zk.nodeRequestIterator()] == [request.id])
    wait_for("the listener was told", lambda: node.id in told)
    told.clear()
    node.state = states.READY
    zk.storeNode(node)
    wait_for("the listener was told", lambda: node.id in told)
    told.clear()
    zk.deleteNode(node)
    wait_for("the listener was told", lambda: node.id in told)
    assert zk.cache is not None
    assert zk.cache.nodes.get(node.key) is None


def test_versions(zk: ZooKeeper) -> None:
    """A write with an old version fails and changes nothing."""
    node = make_node(zk)
    old = node.copy()
    node.comment = "first"
    zk.storeNode(node)
    assert node.version == 1
    old.comment = "second"
    with pytest.raises(ZKConflict):
        zk.storeNode(old)
    zk.updateNode(old)
    assert old.comment == "first"
    zk.storeNode(old)
    zk.deleteRawNode(node.key)
    with pytest.raises(ZKConflict):
        zk.storeNode(old)
    with pytest.raises(ZKConflict):
        zk.updateNode(old)


def test_node_locks(zk: ZooKeeper) -> None:
    """One holder at a time; who waits gets it."""
    node = make_node(zk)
    other = node.copy()
    zk.lockNode(node, blocking=False)
    wait_for("the lock is seen", lambda: zk.isNodeLocked(node))
    assert len(zk.getNodeLockContenders(node.key)) == 1
    with pytest.raises(ZKLockException):
        zk.lockNode(other, blocking=False)
    with pytest.raises(ZKLockException):
        zk.lockNode(other, timeout=0.01)
    with pytest.raises(ZKLockException):
        zk.unlockNode(other)
    waiter = threading.Thread(target=lambda: zk.lockNode(other, timeout=DEADLINE_SECONDS))
    waiter.start()
    zk.unlockNode(node)
    waiter.join()
    assert node.lock is None
    assert other.lock is not None
    zk.forceUnlockNode(node)
    wait_for("the lock is free", lambda: not zk.isNodeLocked(node))


def test_lock_and_save(zk: ZooKeeper) -> None:
    """Both or nothing."""
    node = make_node(zk)
    stale = node.copy()
    node.state = states.BUILDING
    zk.nodes.lock_and_save(node)
    wait_for("the lock is seen", lambda: zk.isNodeLocked(node))
    second = node.copy()
    second.lock = None
    for loser in (stale, second):
        with pytest.raises(ZKConflict):
            zk.nodes.lock_and_save(loser)
        with pytest.raises(ZKConflict):
            zk.nodes.save_unlocked(loser)
        assert loser.lock is None
    node.state = states.READY
    zk.storeNode(node)
    zk.unlockNode(node)
    wait_for("the lock is free", lambda: not zk.isNodeLocked(node))
    node.comment = "unlocked"
    zk.nodes.save_unlocked(node)


def test_removal(zk: ZooKeeper) -> None:
    """A locked node goes with its lock, and may leave a successor."""
    node = make_node(zk)
    with pytest.raises(ZKLockException):
        zk.replaceNode(node, None)
    zk.lockNode(node)
    successor = Node("small")
    zk.replaceNode(node, successor)
    assert node.lock is None
    assert zk.getNodes() == [successor.id]
    zk.lockNode(successor)
    zk.deleteNode(successor)
    assert zk.getNodes() == []
    zk.deleteRawNode(successor.key)


def test_finish(zk: ZooKeeper) -> None:
    """A request and its nodes are written and unlocked in one write, or not at all."""
    nodes, request = [make_node(zk), make_node(zk)], make_request(zk)
    with pytest.raises(ZKLockException):
        zk.requests.finish(request, nodes)
    request.state = states.PENDING
    zk.requests.send_lock(request)()
    with pytest.raises(ZKConflict):
        zk.requests.send_lock(request.copy())()
    for node in nodes:
        node.state = states.READY
        zk.nodes.lock_and_save(node)
    request.state = states.FULFILLED
    request.nodes = [node.key for node in nodes]
    for node in nodes:
        node.allocated_to = request.id
    zk.requests.finish(request, nodes, nodes_too=True)
    assert request.lock is None
    wait_for("all are unlocked", lambda: not any(zk.isNodeLocked(node) for node in nodes))
    stored = zk.getNodeRequest(request.key)
    assert stored is not None
    assert (stored.state, stored.nodes) == (states.FULFILLED, request.nodes)
    allocated = [node.allocated_to for node in map(zk.getNode, request.nodes) if node is not None]
    assert allocated == [request.id, request.id]


def test_finish_leaves_locks(zk: ZooKeeper) -> None:
    """A node that comes without its lock is written and stays locked; ``unlocked``, it must not be."""
    node, request = make_node(zk), make_request(zk)
    request.state = states.PENDING
    zk.requests.send_lock(request)()
    zk.nodes.lock_and_save(node)
    wait_for("the lock is seen", lambda: zk.isNodeLocked(node))
    written = node.copy()
    written.lock = None
    with pytest.raises(ZKConflict):
        zk.requests.finish(request, [written], unlocked=True)
    zk.requests.finish(request, [written], nodes_too=True)
    assert request.lock is None
    assert zk.isNodeLocked(node)
    with pytest.raises(ZKConflict):
        zk.storeNode(node)
    zk.unlockNode(node)


def test_finish_of_a_deleted_request(zk: ZooKeeper) -> None:
    """Nothing is written when the request is gone; its nodes stay locked."""
    node, request = make_node(zk), make_request(zk)
    request.state = states.PENDING
    zk.requests.send_lock(request)()
    zk.nodes.lock_and_save(node)
    zk.deleteNodeRequest(request)
    node.allocated_to = request.id
    with pytest.raises(ZKConflict):
        zk.requests.finish(request, [node], nodes_too=True)
    assert node.lock is not None
    wait_for("the lock is seen", lambda: zk.isNodeLocked(node))
    stored = zk.getNode(node.key)
    assert stored is not None
    assert stored.allocated_to is None


def test_lock_for_good(zk: ZooKeeper) -> None:
    """The lock of a backing node: taken with a write, by name, and released by whoever has the provider (T-3, T-8)."""
    node = make_node(zk)
    assert zk.nodes.lock_holder(node.key) is None
    node.state = states.READY
    zk.storeNode(node)
    node.state = states.IN_USE
    contender = zk.nodes.lock_for_good(node, "a name")
    assert zk.nodes.lock_holder(node.key) == (contender, "a name")
    assert zk.getNodeLockContenders(node.key) == ["a name"]
    found = zk.getNode(node.key)
    assert found is not None
    assert (found.state, found.version) == (states.IN_USE, node.version)
    with pytest.raises(ZKConflict):
        zk.nodes.lock_for_good(found, "another name")
    found.state = states.USED
    with pytest.raises(ZKConflict):
        zk.nodes.save_and_release(found, f"{contender}0")
    zk.nodes.save_and_release(found, contender)
    assert zk.nodes.lock_holder(node.key) is None
    wait_for("the release is seen", lambda: not zk.isNodeLocked(found))
    node.state = states.USED
    with pytest.raises(ZKConflict):
        zk.nodes.lock_for_good(node, "somebody who is late")


def test_existing(zk: ZooKeeper) -> None:
    """Which znodes there are."""
    node = make_node(zk)
    assert zk.nodes.existing([node.key, "nobody"]) == {node.id}
    zk.deleteNode(node)
    assert not zk.nodes.existing([node.key])


def test_request_locks(zk: ZooKeeper) -> None:
    """Request locks are exclusive."""
    request = make_request(zk)
    other = request.copy()
    zk.lockNodeRequest(request, blocking=False)
    with pytest.raises(ZKLockException):
        zk.lockNodeRequest(other, blocking=False)
    zk.unlockNodeRequest(request)
    zk.lockNodeRequest(other, blocking=False)
    zk.unlockNodeRequest(other)


def test_mutex(zk: ZooKeeper) -> None:
    """One at a time for one provider, others at the same time."""
    second = zk.providerMutex("one", timeout=0.05)
    with zk.providerMutex("one"), zk.providerMutex("two"), pytest.raises(ZKLockException):
        second.__enter__()
    with zk.providerMutex("one", timeout=DEADLINE_SECONDS):
        assert zk.getRegisteredPools() == []


def test_records_must_be_json(zk: ZooKeeper) -> None:
    """What cannot be stored is refused where it is written."""
    node = Node("small")
    node.driver_data = {1, 2}
    with pytest.raises(TypeError):
        zk.storeNode(node)
