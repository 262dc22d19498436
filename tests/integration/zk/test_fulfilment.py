# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.request_store: fulfilling and giving back, each in one write (reference/zookeeper 4.4, 4.5)."""

from __future__ import annotations

import pytest

from nodepool.exceptions import ZKConflict, ZKLockException
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodes import NodeStore
from nodepool.zk.request_store import RequestStore
from nodepool.zk.transactions import TransactionFailed
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.records import id_of, lock_dir
from tests.support.session_loss import expire_session
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture
def store(requests: RequestStore) -> RequestStore:
    return requests


def allocated(request: NodeRequest, nodes: list[Node]) -> None:
    for node in nodes:
        node.allocated_to = request.id
    request.nodes = [node.key for node in nodes]
    request.state = "fulfilled"


def states(znodes: PoolZnodes, request: NodeRequest) -> list[str | None]:
    return [znodes.request_state(id_of(request)), *(n["allocated_to"] for n in znodes.nodes().values())]


# -- fulfilment at once


@pytest.mark.parametrize("lock_dirs", [True, False])
def test_ready_nodes_fulfil_a_request(
    store: RequestStore,
    nodes: NodeStore,
    submitted: NodeRequest,
    ready: list[Node],
    znodes: PoolZnodes,
    lock_dirs: bool,
) -> None:
    """4.4: all at the same time, and nothing is locked afterwards."""
    if lock_dirs:
        for node in ready:
            znodes.kazoo.ensure_path(paths.node_lock(node.key))
        wait_for("the directories are seen", lambda: all(nodes.has_lock_dir(node.key) for node in ready))
        znodes.kazoo.ensure_path(lock_dir(submitted))
    allocated(submitted, ready)
    store.save_unlocked(submitted, ready)
    assert states(znodes, submitted) == ["fulfilled", submitted.id, submitted.id]
    assert [node.version for node in ready] == [1, 1]
    assert [znodes.node_lockers(node.key) for node in ready] == [[], []]


@pytest.mark.parametrize("obstacle", ["request lock", "node lock", "request changed", "node changed", "node gone"])
def test_one_obstacle_fails_the_whole(
    store: RequestStore,
    nodes: NodeStore,
    submitted: NodeRequest,
    ready: list[Node],
    znodes: PoolZnodes,
    competitor: Competitor,
    obstacle: str,
) -> None:
    """A node is never given to two requests."""
    second = ready[1].key
    if obstacle == "request lock":
        competitor.hold(lock_dir(submitted))
    elif obstacle == "node lock":
        competitor.hold(paths.node_lock(second))
        wait_for("the lock is seen", lambda: nodes.is_locked(second))
    elif obstacle == "request changed":
        znodes.kazoo.set(paths.request(id_of(submitted)), b'{"state": "requested"}')
    elif obstacle == "node changed":
        znodes.change_node(second, comment="x")
    else:
        znodes.kazoo.delete(paths.node(second))
    allocated(submitted, ready)
    with pytest.raises(ZKConflict):
        store.save_unlocked(submitted, ready)
    assert states(znodes, submitted)[:2] == ["requested", None]
    assert {node.version for node in ready} == {0}
    request_lockers = znodes.request_lockers(id_of(submitted))
    assert len(request_lockers) == (1 if obstacle == "request lock" else 0)


def test_which_obstacle(store: RequestStore, submitted: NodeRequest, znodes: PoolZnodes) -> None:
    """`send_unlocked` leaves the second try to the caller."""
    znodes.kazoo.ensure_path(lock_dir(submitted))
    reply = store.send_unlocked(submitted)
    with pytest.raises(TransactionFailed) as caught:
        reply.get(30)
    assert store.lock_dir_was_there(submitted, caught.value)
    store.send_unlocked(submitted, lock_dir_exists=True).get(30)
    assert submitted.version == 1


# -- finish


@pytest.fixture
def served(store: RequestStore, nodes: NodeStore, submitted: NodeRequest, ready: list[Node]) -> NodeRequest:
    """A pending request that we hold, with its nodes."""
    submitted.state = "pending"
    store.lock_and_save(submitted)
    for node in ready:
        node.allocated_to = submitted.id
        nodes.lock_and_save(node)
    return submitted


def test_finish(store: RequestStore, served: NodeRequest, ready: list[Node], znodes: PoolZnodes) -> None:
    """L-12 in one write: nothing is locked, no directory of the request is left."""
    allocated(served, ready)
    store.finish(served, ready)
    assert states(znodes, served) == ["fulfilled", served.id, served.id]
    assert [znodes.node_lockers(node.key) for node in ready] == [[], []]
    assert store.lock_dir_ids() == []
    assert [served.lock, *(node.lock for node in ready)] == [None, None, None]


def test_finish_with_nodes(store: RequestStore, served: NodeRequest, ready: list[Node], znodes: PoolZnodes) -> None:
    """A-14: declining frees what was gathered."""
    for node in ready:
        node.allocated_to = None
    served.state = "requested"
    store.finish(served, ready, nodes_too=True)
    assert states(znodes, served) == ["requested", None, None]
    assert [node.version for node in ready] == [2, 2]


def test_waiters_get_the_locks(
    store: RequestStore, served: NodeRequest, ready: list[Node], competitor: Competitor
) -> None:
    """Zuul waits for the request lock (priority) and for a node."""
    first = competitor.wait_for_lock(lock_dir(served))
    second = competitor.wait_for_lock(paths.node_lock(ready[0].key))
    allocated(served, ready)
    store.finish(served, ready)
    assert first.wait(30)
    assert second.wait(30)


@pytest.mark.parametrize("obstacle", ["request changed", "request gone", "node lock", "node changed"])
def test_obstacle_fails_the_whole_finish(
    store: RequestStore, served: NodeRequest, ready: list[Node], znodes: PoolZnodes, obstacle: str
) -> None:
    node_id = ready[1].key
    if obstacle == "request changed":
        znodes.kazoo.set(paths.request(id_of(served)), b'{"state": "pending"}')
    elif obstacle == "request gone":
        znodes.delete_request(id_of(served))
    elif obstacle == "node lock":
        znodes.kazoo.delete(paths.node_lock(node_id), recursive=True)
    else:
        znodes.change_node(node_id, comment="x")
    allocated(served, ready)
    with pytest.raises(ZKConflict):
        store.finish(served, ready, nodes_too=True)
    assert znodes.request_state(id_of(served)) == (None if obstacle == "request gone" else "pending")
    assert len(znodes.request_lockers(id_of(served))) == 1
    assert len(znodes.node_lockers(ready[0].key)) == 1
    assert served.lock is not None


def test_finish_after_our_session_is_lost(
    store: RequestStore,
    served: NodeRequest,
    ready: list[Node],
    znodes: PoolZnodes,
    client: ZooKeeperClient,
    zookeeper: ZooKeeperServer,
    competitor: Competitor,
) -> None:
    """Fencing: a launcher that was stopped past its session fails its next write, even with nobody there yet."""
    expire_session(zookeeper.plain_hosts(), client.kazoo.client_id)
    wait_for("the new session", lambda: client.session_epoch == 1 and client.connected)
    allocated(served, ready)
    with pytest.raises(ZKConflict):
        store.finish(served, ready)
    assert znodes.request_state(id_of(served)) == "pending"
    competitor.hold(lock_dir(served))
    with pytest.raises(ZKConflict):
        store.finish(served, ready)
    assert znodes.request_state(id_of(served)) == "pending"


def test_finish_without_a_lock(store: RequestStore, submitted: NodeRequest) -> None:
    with pytest.raises(ZKLockException):
        store.finish(submitted)
