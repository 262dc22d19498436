# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.request_store: read, write, lock, fulfil (zookeeper.md 4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKLockException
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.node_store import NodeStore
from nodepool.zk.nodepool_cache import NodepoolCache
from nodepool.zk.request_store import RequestStore
from nodepool.zk.transactions import TransactionFailed
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture(params=["with cache", "without cache"])
def nodes(request: pytest.FixtureRequest, client: ZooKeeperClient) -> NodeStore:
    cache = None
    if request.param == "with cache":
        cache = NodepoolCache(client)
        assert cache.wait_ready(30)
    return NodeStore(client, cache)


@pytest.fixture
def store(client: ZooKeeperClient, nodes: NodeStore) -> RequestStore:
    return RequestStore(client, nodes._cache, nodes, clock=lambda: 1234.5)


@pytest.fixture
def submitted(store: RequestStore, znodes: PoolZnodes) -> NodeRequest:
    """A request of Zuul, as we read it."""
    found = store.get(znodes.submit(["small", "small"]))
    assert found is not None
    return found


def rid(request: NodeRequest) -> str:
    assert request.id is not None
    return request.id


def lock_dir(request: NodeRequest) -> str:
    return paths.request_lock(rid(request))


@pytest.fixture
def ready(nodes: NodeStore) -> list[Node]:
    """Two free ready nodes."""
    made = []
    for _ in range(2):
        node = Node("small")
        node.state = "ready"
        nodes.create(node)
        made.append(node)
    return made


def allocated(request: NodeRequest, nodes: list[Node]) -> None:
    for node in nodes:
        node.allocated_to = request.id
    request.nodes = [node.id or "" for node in nodes]
    request.state = "fulfilled"


def states(znodes: PoolZnodes, request: NodeRequest) -> list[str | None]:
    return [znodes.request_state(rid(request)), *(n["allocated_to"] for n in znodes.nodes().values())]


# -- reading and writing


def test_creation(store: RequestStore, znodes: PoolZnodes, client: ZooKeeperClient) -> None:
    """4.1: three digits and a sequence; ours go with our session."""
    for priority, prefix in (("900", "900-"), ("99", "099-")):
        request = NodeRequest()
        store.create(request, priority)
        assert rid(request).startswith(prefix)
        assert request.version == 0
        stat = znodes.kazoo.exists(paths.request(rid(request)))
        assert stat.ephemeralOwner == client.kazoo.client_id[0]
    assert len(store.ids()) == 2


def test_reading(
    store: RequestStore, submitted: NodeRequest, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    assert (submitted.node_types, submitted.state, submitted.version) == (["small", "small"], "requested", 0)
    assert submitted.mzxid > 0
    bad = znodes.submit_raw(b"{")
    znodes.kazoo.create(f"{paths.REQUESTS}/lock")
    assert [found.id for found in store.iterate()] == [submitted.id]
    assert sorted(store.ids()) == sorted([rid(submitted), bad])
    assert store.get(bad) is None
    assert f"Ignoring {paths.request(bad)}" in caplog.text
    assert store.get("200-0000009999") is None


def test_nothing_there(store: RequestStore) -> None:
    assert (store.ids(), list(store.iterate()), store.lock_dir_ids()) == ([], [], [])
    assert store.lock_dir_age("200-0000000001") is None
    store.remove_lock_dir_recursive("200-0000000001")
    assert store.remove_lock_dir("200-0000000001")
    store.delete(NodeRequest("200-0000000001"))


def test_save_is_fenced(store: RequestStore, submitted: NodeRequest, znodes: PoolZnodes) -> None:
    submitted.state = "pending"
    store.save(submitted)
    assert (znodes.request_state(rid(submitted)), submitted.version) == ("pending", 1)
    znodes.kazoo.set(paths.request(rid(submitted)), b'{"state": "requested"}')
    submitted.state = "fulfilled"
    with pytest.raises(ZKConflict):
        store.save(submitted)
    assert znodes.request_state(rid(submitted)) == "requested"


def test_delete(store: RequestStore, znodes: PoolZnodes) -> None:
    request = NodeRequest()
    store.create(request, "900")
    store.delete(request)
    store.delete(request)
    assert znodes.children(paths.REQUESTS) == []


# -- locks


def test_lock_and_unlock(store: RequestStore, submitted: NodeRequest, znodes: PoolZnodes) -> None:
    """Ours leave no directory behind."""
    store.lock(submitted, blocking=False)
    assert len(znodes.request_lockers(rid(submitted))) == 1
    assert store.lock_dir_ids() == [submitted.id]
    store.unlock(submitted)
    assert znodes.children(paths.REQUEST_LOCKS) == []
    with pytest.raises(ZKLockException):
        store.unlock(submitted)


def test_unlock_while_somebody_waits(store: RequestStore, submitted: NodeRequest, competitor: Competitor) -> None:
    store.lock(submitted)
    taken = competitor.wait_for_lock(lock_dir(submitted))
    store.unlock(submitted)
    assert taken.wait(30)


def test_lock_of_somebody_else(store: RequestStore, submitted: NodeRequest, competitor: Competitor) -> None:
    competitor.hold(lock_dir(submitted))
    with pytest.raises(ZKLockException):
        store.lock(submitted, blocking=False)
    assert not store.remove_lock_dir(rid(submitted))
    store.remove_lock_dir_recursive(rid(submitted))
    assert store.lock_dir_ids() == []


def test_age_of_a_lock_dir(store: RequestStore, submitted: NodeRequest, znodes: PoolZnodes) -> None:
    """C-2"""
    znodes.kazoo.create(lock_dir(submitted), makepath=True)
    mtime = znodes.kazoo.exists(lock_dir(submitted)).mtime / 1000
    assert store.lock_dir_age(rid(submitted)) == pytest.approx(1234.5 - mtime)


# -- fenced writes

Write = Callable[[RequestStore, NodeRequest], None]
FENCED: list[Write] = [RequestStore.lock_and_save, RequestStore.save_unlocked]


@pytest.mark.parametrize("write", FENCED)
@pytest.mark.parametrize("existing", ["", paths.REQUEST_LOCKS, "directory"])
def test_write_of_a_free_request(
    store: RequestStore, submitted: NodeRequest, znodes: PoolZnodes, competitor: Competitor, write: Write, existing: str
) -> None:
    """Whether the lock directory, or the root of them all, exists or not."""
    if existing:
        znodes.kazoo.ensure_path(lock_dir(submitted) if existing == "directory" else existing)
    submitted.state = "pending"
    write(store, submitted)
    assert (znodes.request_state(rid(submitted)), submitted.version) == ("pending", 1)
    left = existing == "directory" or write is RequestStore.lock_and_save
    assert store.lock_dir_ids() == ([submitted.id] if left else [])
    assert competitor.may_take(lock_dir(submitted)) is (submitted.lock is None)
    if submitted.lock is not None:
        store.unlock(submitted)
        assert competitor.may_take(lock_dir(submitted))


@pytest.mark.parametrize("write", FENCED)
def test_held_lock_fails_the_whole_write(
    store: RequestStore, submitted: NodeRequest, znodes: PoolZnodes, competitor: Competitor, write: Write
) -> None:
    held = competitor.hold(lock_dir(submitted))
    submitted.state = "pending"
    with pytest.raises(ZKConflict):
        write(store, submitted)
    assert (znodes.request_state(rid(submitted)), submitted.version, submitted.lock) == ("requested", 0, None)
    assert len(znodes.request_lockers(rid(submitted))) == 1
    assert held.is_acquired


@pytest.mark.parametrize("write", FENCED)
def test_changed_or_gone_request_fails_the_whole_write(
    store: RequestStore, submitted: NodeRequest, znodes: PoolZnodes, write: Write
) -> None:
    """4.6: Zuul changed the priority, or cancelled."""
    znodes.kazoo.set(paths.request(rid(submitted)), b'{"state": "requested", "relative_priority": 5}')
    with pytest.raises(ZKConflict):
        write(store, submitted)
    znodes.delete_request(rid(submitted))
    with pytest.raises(ZKConflict):
        write(store, submitted)
    assert znodes.children(paths.REQUESTS) == []
    assert [name for name in store.lock_dir_ids() if znodes.request_lockers(name)] == []


def test_waiter_gets_the_lock_when_the_transaction_releases(
    store: RequestStore, submitted: NodeRequest, competitor: Competitor
) -> None:
    store.lock_and_save(submitted)
    taken = competitor.wait_for_lock(lock_dir(submitted))
    assert not taken.is_set()
    submitted.state = "fulfilled"
    store.finish(submitted)
    assert taken.wait(30)


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
            znodes.kazoo.ensure_path(paths.node_lock(node.id or ""))
        wait_for("the directories are seen", lambda: all(nodes.has_lock_dir(node.id or "") for node in ready))
        znodes.kazoo.ensure_path(lock_dir(submitted))
    allocated(submitted, ready)
    store.save_unlocked(submitted, ready)
    assert states(znodes, submitted) == ["fulfilled", submitted.id, submitted.id]
    assert [node.version for node in ready] == [1, 1]
    assert [znodes.node_lockers(node.id or "") for node in ready] == [[], []]


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
    second = ready[1].id or ""
    if obstacle == "request lock":
        competitor.hold(lock_dir(submitted))
    elif obstacle == "node lock":
        competitor.hold(paths.node_lock(second))
        wait_for("the lock is seen", lambda: nodes.is_locked(second))
    elif obstacle == "request changed":
        znodes.kazoo.set(paths.request(rid(submitted)), b'{"state": "requested"}')
    elif obstacle == "node changed":
        znodes.change_node(second, comment="x")
    else:
        znodes.kazoo.delete(paths.node(second))
    allocated(submitted, ready)
    with pytest.raises(ZKConflict):
        store.save_unlocked(submitted, ready)
    assert states(znodes, submitted)[:2] == ["requested", None]
    assert {node.version for node in ready} == {0}
    request_lockers = znodes.request_lockers(rid(submitted))
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
    assert [znodes.node_lockers(node.id or "") for node in ready] == [[], []]
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
    second = competitor.wait_for_lock(paths.node_lock(ready[0].id or ""))
    allocated(served, ready)
    store.finish(served, ready)
    assert first.wait(30)
    assert second.wait(30)


@pytest.mark.parametrize("obstacle", ["request changed", "request gone", "node lock", "node changed"])
def test_obstacle_fails_the_whole_finish(
    store: RequestStore, served: NodeRequest, ready: list[Node], znodes: PoolZnodes, obstacle: str
) -> None:
    node_id = ready[1].id or ""
    if obstacle == "request changed":
        znodes.kazoo.set(paths.request(rid(served)), b'{"state": "pending"}')
    elif obstacle == "request gone":
        znodes.delete_request(rid(served))
    elif obstacle == "node lock":
        znodes.kazoo.delete(paths.node_lock(node_id), recursive=True)
    else:
        znodes.change_node(node_id, comment="x")
    allocated(served, ready)
    with pytest.raises(ZKConflict):
        store.finish(served, ready, nodes_too=True)
    assert znodes.request_state(rid(served)) == (None if obstacle == "request gone" else "pending")
    assert len(znodes.request_lockers(rid(served))) == 1
    assert len(znodes.node_lockers(ready[0].id or "")) == 1
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
    assert znodes.request_state(rid(served)) == "pending"
    competitor.hold(lock_dir(served))
    with pytest.raises(ZKConflict):
        store.finish(served, ready)
    assert znodes.request_state(rid(served)) == "pending"


def test_finish_without_a_lock(store: RequestStore, submitted: NodeRequest) -> None:
    with pytest.raises(ZKLockException):
        store.finish(submitted)


# -- no connection


def test_closed_connection(
    store: RequestStore, served: NodeRequest, ready: list[Node], client: ZooKeeperClient
) -> None:
    client.kazoo.stop()
    calls: list[Callable[[], object]] = [
        *(store.ids, lambda: list(store.iterate()), lambda: store.get(rid(served)), lambda: store.save(served)),
        *(lambda: store.create(NodeRequest(), "900"), lambda: store.delete(served), lambda: store.lock(served)),
        *(lambda: store.save_unlocked(served), lambda: store.lock_and_save(served)),
        *(lambda: store.finish(served, ready), lambda: store.remove_lock_dir("x"), store.lock_dir_ids),
        *(lambda: store.lock_dir_age("x"), lambda: store.remove_lock_dir_recursive("x"), lambda: store.unlock(served)),
    ]
    for call in calls:
        with pytest.raises(ZKConnectionError):
            call()
