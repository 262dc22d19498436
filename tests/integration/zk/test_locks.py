# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.locks: the wire of Kazoo's Lock recipe (reference/zookeeper 3)."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodepool.exceptions import ZKConnectionError, ZKLockException, ZKLockTimeout
from nodepool.zk import locks
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.locks import ZkLock
from nodepool.zk.transactions import Transaction
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

DIR = "/nodepool/nodes/0000000001/lock"


def take_in_transaction(client: ZooKeeperClient, *, exists: bool) -> ZkLock:
    tx = Transaction(client)
    tx.fence_lock(DIR, exists=exists, keep=True)
    index = locks.add_contender(tx, DIR, "ours")
    return ZkLock(DIR, tx.commit()[index], client.session_epoch)


@pytest.fixture(autouse=True)
def node(client: ZooKeeperClient) -> None:
    client.kazoo.ensure_path("/nodepool/nodes/0000000001")


def test_names_of_contenders(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """<32 hex>__lock__<10 digits>, the identifier as its data, ephemeral."""
    for lock in (take_in_transaction(client, exists=False), None):
        lock = lock or locks.acquire(client, DIR, identifier="ours")
        [name] = znodes.children(DIR)
        assert re.fullmatch(r"[0-9a-f]{32}__lock__[0-9]{10}", name)
        assert lock.contender == f"{DIR}/{name}"
        data, stat = znodes.kazoo.get(lock.contender)
        assert data == b"ours"
        assert stat.ephemeralOwner == client.kazoo.client_id[0]
        locks.release(client, lock)
        assert znodes.children(DIR) == []


@pytest.mark.parametrize("exists", [True, False])
def test_our_contender_blocks_kazoo(client: ZooKeeperClient, competitor: Competitor, exists: bool) -> None:
    if exists:
        client.kazoo.ensure_path(DIR)
    lock = take_in_transaction(client, exists=exists)
    assert not competitor.may_take(DIR)
    locks.release(client, lock)
    assert competitor.may_take(DIR)


def test_kazoo_blocks_us(client: ZooKeeperClient, competitor: Competitor) -> None:
    held = competitor.hold(DIR)
    with pytest.raises(ZKLockException, match="locked by another process"):
        locks.acquire(client, DIR, blocking=False)
    with pytest.raises(ZKLockTimeout, match=r"waited 0\.05 s"):
        locks.acquire(client, DIR, timeout=0.05)
    with pytest.raises(Exception, match="NotEmpty"):
        take_in_transaction(client, exists=True)
    held.release()
    locks.release(client, locks.acquire(client, DIR, blocking=False))


def test_first_come_first_served(client: ZooKeeperClient, competitor: Competitor, znodes: PoolZnodes) -> None:
    """FIFO with Kazoo's contenders before and behind us."""
    order: list[str] = []
    ours = take_in_transaction(client, exists=False)
    first = competitor.wait_for_lock(DIR, order, "first")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locks.acquire, client, DIR, timeout=60)
        wait_for("we are in the queue", lambda: len(znodes.children(DIR)) == 3)
        last = competitor.wait_for_lock(DIR, order, "last")
        assert not first.is_set()
        locks.release(client, ours)
        assert first.wait(30)
        assert not waiting.done()
        competitor._locks.pop().release()
        second = waiting.result(30)
        order.append("ours")
        assert not last.is_set()
        locks.release(client, second)
        assert last.wait(30)
    assert order == ["first", "ours", "last"]


def test_release_twice(client: ZooKeeperClient) -> None:
    lock = locks.acquire(client, DIR)
    locks.release(client, lock)
    locks.release(client, lock)


def test_lock_ends_with_the_session(
    client: ZooKeeperClient, zookeeper: ZooKeeperServer, competitor: Competitor
) -> None:
    lock = take_in_transaction(client, exists=False)
    expire_session(zookeeper.plain_hosts(), client.kazoo.client_id)
    assert competitor.may_take(DIR)
    wait_for("the new session", lambda: client.session_epoch == 1 and client.connected)
    locks.release(client, lock)


def test_persistent_lock(client: ZooKeeperClient, zookeeper: ZooKeeperServer, competitor: Competitor) -> None:
    """Metastatic backing nodes: it outlives the session."""
    lock = locks.acquire(client, DIR, ephemeral=False, identifier="NodePool:metastatic:cloud")
    expire_session(zookeeper.plain_hosts(), client.kazoo.client_id)
    assert not competitor.may_take(DIR)
    wait_for("the new session", lambda: client.session_epoch == 1 and client.connected)
    locks.release(client, lock)
    assert competitor.may_take(DIR)


def test_closed_connection(client: ZooKeeperClient) -> None:
    lock = locks.acquire(client, DIR)
    client.kazoo.stop()
    with pytest.raises(ZKConnectionError):
        locks.release(client, lock)
    with pytest.raises(ZKConnectionError):
        locks.acquire(client, DIR, blocking=False)


def test_held_since(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """The number of the holder's contender; that of one who waits does not matter."""
    assert locks.held_since(client, DIR) is None
    lock = take_in_transaction(client, exists=False)
    held = locks.held_since(client, DIR)
    assert held == znodes.kazoo.exists(lock.contender).czxid
    _, before = znodes.kazoo.get("/nodepool/nodes/0000000001")
    znodes.kazoo.create(f"{DIR}/{'f' * 32}__lock__", b"", sequence=True)
    assert locks.held_since(client, DIR) == held
    znodes.kazoo.set("/nodepool/nodes/0000000001", b"{}")
    _, after = znodes.kazoo.get("/nodepool/nodes/0000000001")
    assert held is not None
    assert before.mzxid < held < after.mzxid


def test_place_of_which_our_server_has_not_heard_yet(
    client: ZooKeeperClient, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection broke after the place was taken, and the next server is behind: it is taken once, and goes."""
    kazoo = client.kazoo
    kazoo.ensure_path(DIR)
    prefix = locks.contender_prefix(DIR)
    place = locks.join(client, DIR, prefix, "ours")
    sync, get_children = kazoo.sync, kazoo.get_children
    caught_up: list[str] = []

    def catch_up(path: str) -> object:
        caught_up.append(path)
        return sync(path)

    monkeypatch.setattr(kazoo, "sync", catch_up)
    monkeypatch.setattr(kazoo, "get_children", lambda path: get_children(path) if caught_up else [])
    assert locks.join(client, DIR, prefix, "ours") == place
    caught_up.clear()
    locks.leave(client, prefix)
    assert znodes.children(DIR) == []
