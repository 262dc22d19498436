# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.request_store: read, write, lock, fulfil (reference/zookeeper 4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKLockException
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.request_store import RequestStore
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.records import id_of, lock_dir


@pytest.fixture
def store(requests: RequestStore) -> RequestStore:
    return requests


# -- reading and writing


def test_creation(store: RequestStore, znodes: PoolZnodes, client: ZooKeeperClient) -> None:
    """4.1: three digits and a sequence; ours go with our session."""
    for priority, prefix in (("900", "900-"), ("99", "099-")):
        request = NodeRequest()
        store.create(request, priority)
        assert id_of(request).startswith(prefix)
        assert request.version == 0
        stat = znodes.kazoo.exists(paths.request(id_of(request)))
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
    assert sorted(store.ids()) == sorted([id_of(submitted), bad])
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
    assert (znodes.request_state(id_of(submitted)), submitted.version) == ("pending", 1)
    znodes.kazoo.set(paths.request(id_of(submitted)), b'{"state": "requested"}')
    submitted.state = "fulfilled"
    with pytest.raises(ZKConflict):
        store.save(submitted)
    assert znodes.request_state(id_of(submitted)) == "requested"


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
    assert len(znodes.request_lockers(id_of(submitted))) == 1
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
    assert not store.remove_lock_dir(id_of(submitted))
    store.remove_lock_dir_recursive(id_of(submitted))
    assert store.lock_dir_ids() == []


def test_age_of_a_lock_dir(store: RequestStore, submitted: NodeRequest, znodes: PoolZnodes) -> None:
    """C-2"""
    znodes.kazoo.create(lock_dir(submitted), makepath=True)
    mtime = znodes.kazoo.exists(lock_dir(submitted)).mtime / 1000
    assert store.lock_dir_age(id_of(submitted)) == pytest.approx(1234.5 - mtime)


# -- fenced writes

Write = Callable[[RequestStore, NodeRequest], None]


def lock_with_node(store: RequestStore, request: NodeRequest) -> None:
    """As many requests at once are taken."""
    store.send_lock(request, Node("small"))()


FENCED: list[Write] = [RequestStore.lock_and_save, lock_with_node, RequestStore.save_unlocked]


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
    assert (znodes.request_state(id_of(submitted)), submitted.version) == ("pending", 1)
    assert len(znodes.children(paths.NODES)) == (write is lock_with_node)
    left = existing == "directory" or write is not RequestStore.save_unlocked
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
    assert (znodes.request_state(id_of(submitted)), submitted.version, submitted.lock) == ("requested", 0, None)
    assert len(znodes.request_lockers(id_of(submitted))) == 1
    assert znodes.children(paths.NODES) == []
    assert held.is_acquired


@pytest.mark.parametrize("write", FENCED)
def test_changed_or_gone_request_fails_the_whole_write(
    store: RequestStore, submitted: NodeRequest, znodes: PoolZnodes, write: Write
) -> None:
    """4.6: Zuul changed the priority, or cancelled."""
    znodes.kazoo.set(paths.request(id_of(submitted)), b'{"state": "requested", "relative_priority": 5}')
    with pytest.raises(ZKConflict):
        write(store, submitted)
    znodes.delete_request(id_of(submitted))
    with pytest.raises(ZKConflict):
        write(store, submitted)
    assert znodes.children(paths.REQUESTS) == []
    assert znodes.children(paths.NODES) == []
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


# -- no connection


def test_closed_connection(store: RequestStore, submitted: NodeRequest, client: ZooKeeperClient) -> None:
    store.lock_and_save(submitted)
    client.kazoo.stop()
    calls: list[Callable[[], object]] = [
        *(store.ids, lambda: list(store.iterate()), lambda: store.get(id_of(submitted)), lambda: store.save(submitted)),
        *(lambda: store.create(NodeRequest(), "900"), lambda: store.delete(submitted), lambda: store.lock(submitted)),
        *(lambda: store.save_unlocked(submitted), lambda: store.lock_and_save(submitted)),
        *(lambda: store.finish(submitted), lambda: store.remove_lock_dir("x"), store.lock_dir_ids),
        *(
            lambda: store.lock_dir_age("x"),
            lambda: store.remove_lock_dir_recursive("x"),
            lambda: store.unlock(submitted),
        ),
    ]
    for call in calls:
        with pytest.raises(ZKConnectionError):
            call()
