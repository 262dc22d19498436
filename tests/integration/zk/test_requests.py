# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.nodes: read, write, lock, fulfil, give back (reference/zookeeper 4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.exceptions import ZKConflict, ZKLockException
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodes import NodeStore, RequestStore
from nodepool.zk.transactions import TransactionFailed
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.records import lock_dir
from tests.support.wait import wait_for

# -- reading and writing


def test_creation_and_deletion(requests: RequestStore, znodes: PoolZnodes, client: ZooKeeperClient) -> None:
    """4.1: three digits and a sequence; ours go with our session."""
    for priority, prefix in (("900", "900-"), ("99", "099-")):
        request = NodeRequest()
        requests.create(request, priority)
        assert (request.key[:4], request.version) == (prefix, 0)
        assert znodes.kazoo.exists(paths.request(request.key)).ephemeralOwner == client.kazoo.client_id[0]
        assert requests.ids() == [request.id]
        for _ in range(2):
            requests.delete(request)
        assert znodes.children(paths.REQUESTS) == []


def test_reading(
    requests: RequestStore, submitted: NodeRequest, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    assert (submitted.node_types, submitted.state, submitted.version) == (["small", "small"], "requested", 0)
    assert submitted.mzxid > 0
    bad = znodes.submit_raw(b"{")
    znodes.kazoo.create(f"{paths.REQUESTS}/lock")
    assert [found.id for found in requests.iterate()] == [submitted.id]
    assert sorted(requests.ids()) == sorted([submitted.key, bad])
    assert [requests.get(request_id) for request_id in (bad, "200-0000009999")] == [None, None]
    assert f"Ignoring {paths.request(bad)}" in caplog.text


def test_nothing_there(requests: RequestStore) -> None:
    assert (requests.ids(), list(requests.iterate()), requests.lock_dir_ids()) == ([], [], [])
    assert requests.lock_dir_age("200-0000000001") is None
    requests.remove_lock_dir_recursive("200-0000000001")
    assert requests.remove_lock_dir("200-0000000001")
    requests.delete(NodeRequest("200-0000000001"))


def test_save_is_fenced(requests: RequestStore, submitted: NodeRequest, znodes: PoolZnodes) -> None:
    submitted.state = "pending"
    requests.save(submitted)
    assert (znodes.request_state(submitted.key), submitted.version) == ("pending", 1)
    znodes.change_request(submitted.key, state="requested")
    submitted.state = "fulfilled"
    with pytest.raises(ZKConflict):
        requests.save(submitted)
    assert znodes.request_state(submitted.key) == "requested"


# -- locks


def test_lock_and_unlock(
    requests: RequestStore, submitted: NodeRequest, znodes: PoolZnodes, competitor: Competitor
) -> None:
    """Ours leave no directory behind; who waits gets it, also from the write that fulfils a request."""
    with pytest.raises(ZKLockException):
        requests.finish(submitted)
    requests.lock(submitted, blocking=False)
    assert (len(znodes.request_lockers(submitted.key)), requests.lock_dir_ids()) == (1, [submitted.id])
    requests.unlock(submitted)
    assert znodes.children(paths.REQUEST_LOCKS) == []
    with pytest.raises(ZKLockException):
        requests.unlock(submitted)
    for release in (requests.unlock, requests.finish):
        requests.lock(submitted)
        taken = competitor.wait_for_lock(lock_dir(submitted))
        assert not taken.is_set()
        release(submitted)
        assert taken.wait(30)
        competitor.stop()


def test_lock_of_another_process(
    requests: RequestStore, submitted: NodeRequest, znodes: PoolZnodes, competitor: Competitor
) -> None:
    """C-2: an old directory may be removed with who is in it."""
    competitor.hold(lock_dir(submitted))
    with pytest.raises(ZKLockException):
        requests.lock(submitted, blocking=False)
    mtime = znodes.kazoo.exists(lock_dir(submitted)).mtime / 1000
    assert requests.lock_dir_age(submitted.key) == pytest.approx(1234.5 - mtime)
    assert not requests.remove_lock_dir(submitted.key)
    requests.remove_lock_dir_recursive(submitted.key)
    assert requests.lock_dir_ids() == []


# -- fenced writes

Write = Callable[[RequestStore, NodeRequest], None]


def lock(requests: RequestStore, request: NodeRequest) -> None:
    requests.send_lock(request)()


def lock_with_node(requests: RequestStore, request: NodeRequest) -> None:
    """As many requests at once are taken."""
    requests.send_lock(request, Node("small"))()


FENCED: list[Write] = [lock, lock_with_node, RequestStore.save_unlocked]


@pytest.mark.parametrize("write", FENCED)
@pytest.mark.parametrize("existing", ["", paths.REQUEST_LOCKS, "directory"])
def test_write_of_a_free_request(
    requests: RequestStore,
    submitted: NodeRequest,
    znodes: PoolZnodes,
    competitor: Competitor,
    write: Write,
    existing: str,
) -> None:
    """Whether the lock directory, or the root of them all, exists or not."""
    if existing:
        znodes.kazoo.ensure_path(lock_dir(submitted) if existing == "directory" else existing)
    submitted.state = "pending"
    write(requests, submitted)
    assert (znodes.request_state(submitted.key), submitted.version) == ("pending", 1)
    assert len(znodes.children(paths.NODES)) == (write is lock_with_node)
    left = existing == "directory" or write is not RequestStore.save_unlocked
    assert requests.lock_dir_ids() == ([submitted.id] if left else [])
    assert competitor.may_take(lock_dir(submitted)) is (submitted.lock is None)
    if submitted.lock is not None:
        requests.unlock(submitted)
        assert competitor.may_take(lock_dir(submitted))


@pytest.mark.parametrize("write", FENCED)
def test_obstacle_fails_the_whole_write(
    requests: RequestStore, submitted: NodeRequest, znodes: PoolZnodes, competitor: Competitor, write: Write
) -> None:
    """4.6: it is locked; Zuul changed the priority, or cancelled."""
    held = competitor.hold(lock_dir(submitted))
    submitted.state = "pending"
    with pytest.raises(ZKConflict):
        write(requests, submitted)
    assert (znodes.request_state(submitted.key), submitted.version, submitted.lock) == ("requested", 0, None)
    assert (len(znodes.request_lockers(submitted.key)), held.is_acquired) == (1, True)
    held.release()
    znodes.change_request(submitted.key, relative_priority=5)
    with pytest.raises(ZKConflict):
        write(requests, submitted)
    znodes.delete_request(submitted.key)
    with pytest.raises(ZKConflict):
        write(requests, submitted)
    assert (znodes.children(paths.REQUESTS), znodes.children(paths.NODES)) == ([], [])
    assert [name for name in requests.lock_dir_ids() if znodes.request_lockers(name)] == []


# -- fulfilment at once (4.4)


def allocated(request: NodeRequest, nodes: list[Node]) -> None:
    for node in nodes:
        node.allocated_to = request.id
    request.nodes = [node.key for node in nodes]
    request.state = "fulfilled"


def states(znodes: PoolZnodes, request: NodeRequest) -> list[str | None]:
    return [znodes.request_state(request.key), *(node["allocated_to"] for node in znodes.nodes().values())]


@pytest.mark.parametrize("lock_dirs", [True, False])
def test_ready_nodes_fulfil_a_request(
    requests: RequestStore,
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
    requests.save_unlocked(submitted, ready)
    assert states(znodes, submitted) == ["fulfilled", submitted.id, submitted.id]
    assert [(node.version, znodes.node_lockers(node.key)) for node in ready] == [(1, []), (1, [])]


def obstruct(obstacle: str, request: NodeRequest, node: Node, znodes: PoolZnodes, competitor: Competitor) -> None:
    match obstacle:
        case "request changed":
            znodes.change_request(request.key, relative_priority=5)
        case "request gone":
            znodes.delete_request(request.key)
        case "request lock":
            competitor.hold(lock_dir(request))
        case "node changed":
            znodes.change_node(node.key, comment="x")
        case "node gone":
            znodes.kazoo.delete(paths.node(node.key))
        case "node lock":
            competitor.hold(paths.node_lock(node.key))
        case _:
            znodes.kazoo.delete(paths.node_lock(node.key), recursive=True)


@pytest.mark.parametrize("obstacle", ["request lock", "node lock", "request changed", "node changed", "node gone"])
def test_one_obstacle_fails_the_fulfilment(
    requests: RequestStore,
    nodes: NodeStore,
    submitted: NodeRequest,
    ready: list[Node],
    znodes: PoolZnodes,
    competitor: Competitor,
    obstacle: str,
) -> None:
    """A node is never given to two requests."""
    obstruct(obstacle, submitted, ready[1], znodes, competitor)
    if obstacle == "node lock":
        wait_for("the lock is seen", lambda: nodes.is_locked(ready[1].key))
    allocated(submitted, ready)
    with pytest.raises(ZKConflict):
        requests.save_unlocked(submitted, ready)
    assert states(znodes, submitted)[:2] == ["requested", None]
    assert [node.version for node in ready] == [0, 0]
    assert len(znodes.request_lockers(submitted.key)) == (obstacle == "request lock")


def test_which_obstacle(requests: RequestStore, submitted: NodeRequest, znodes: PoolZnodes) -> None:
    """`send_unlocked` leaves the second try to the caller."""
    znodes.kazoo.ensure_path(lock_dir(submitted))
    with pytest.raises(TransactionFailed) as caught:
        requests.send_unlocked(submitted).get(30)
    assert requests.lock_dir_was_there(submitted, caught.value)
    requests.send_unlocked(submitted, lock_dir_exists=True).get(30)
    assert submitted.version == 1


# -- the end of a request that was served (4.5)


@pytest.fixture
def served(requests: RequestStore, nodes: NodeStore, submitted: NodeRequest, ready: list[Node]) -> NodeRequest:
    """A pending request that we hold, with its nodes."""
    submitted.state = "pending"
    requests.send_lock(submitted)()
    for node in ready:
        node.allocated_to = submitted.id
        nodes.lock_and_save(node)
    return submitted


@pytest.mark.parametrize("fulfilled", [True, False])
def test_finish(
    requests: RequestStore, served: NodeRequest, ready: list[Node], znodes: PoolZnodes, fulfilled: bool
) -> None:
    """L-12 in one write: nothing is locked, no directory of the request is left. A-14: declining frees the nodes."""
    if fulfilled:
        allocated(served, ready)
        requests.finish(served, ready)
        assert states(znodes, served) == ["fulfilled", served.id, served.id]
    else:
        for node in ready:
            node.allocated_to = None
        served.state = "requested"
        requests.finish(served, ready, nodes_too=True)
        assert states(znodes, served) == ["requested", None, None]
        assert [node.version for node in ready] == [2, 2]
    assert [znodes.node_lockers(node.key) for node in ready] == [[], []]
    assert (requests.lock_dir_ids(), [served.lock, *(node.lock for node in ready)]) == ([], [None, None, None])


def test_waiters_get_the_locks(
    requests: RequestStore, served: NodeRequest, ready: list[Node], competitor: Competitor
) -> None:
    """Zuul waits for the request lock (priority) and for a node."""
    waiting = [competitor.wait_for_lock(path) for path in (lock_dir(served), paths.node_lock(ready[0].key))]
    allocated(served, ready)
    requests.finish(served, ready)
    assert [taken.wait(30) for taken in waiting] == [True, True]


@pytest.mark.parametrize("obstacle", ["request changed", "request gone", "node unlocked", "node changed"])
def test_one_obstacle_fails_the_finish(
    requests: RequestStore,
    served: NodeRequest,
    ready: list[Node],
    znodes: PoolZnodes,
    competitor: Competitor,
    obstacle: str,
) -> None:
    obstruct(obstacle, served, ready[1], znodes, competitor)
    allocated(served, ready)
    with pytest.raises(ZKConflict):
        requests.finish(served, ready, nodes_too=True)
    assert znodes.request_state(served.key) == (None if obstacle == "request gone" else "pending")
    assert (len(znodes.request_lockers(served.key)), len(znodes.node_lockers(ready[0].key))) == (1, 1)
    assert served.lock is not None


def test_finish_after_our_session_is_lost(
    requests: RequestStore,
    served: NodeRequest,
    ready: list[Node],
    znodes: PoolZnodes,
    client: ZooKeeperClient,
    lose_session: Callable[..., None],
    competitor: Competitor,
) -> None:
    """Fencing: a launcher that was stopped past its session fails its next write, even with nobody there yet."""
    lose_session(client)
    allocated(served, ready)
    for successor in (False, True):
        if successor:
            competitor.hold(lock_dir(served))
        with pytest.raises(ZKConflict):
            requests.finish(served, ready)
        assert znodes.request_state(served.key) == "pending"
