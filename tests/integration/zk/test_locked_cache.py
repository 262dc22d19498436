# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.cache: who holds and waits for the locks of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nodepool.model.node import Node
from nodepool.zk import paths
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.reply import CREATED, DELETED, Reply
from nodepool.zk.wire.watched_client import MultiRead
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import READY_NODE, PoolZnodes
from tests.support.wait import wait_for
from tests.support.zk_cache import caught_up
from tests.support.zk_reads import count_reads


@pytest.fixture
def node_id(cache: NodepoolCache, znodes: PoolZnodes) -> str:
    made = znodes.create_node(READY_NODE)
    wait_for("the node is known", lambda: cache.nodes.get(made) is not None)
    return made


def contend(znodes: PoolZnodes, node_id: str, name: str = "ffff__lock__") -> str:
    path: str = znodes.kazoo.create(
        f"{paths.node_lock(node_id)}/{name}", b"", ephemeral=True, sequence=True, makepath=True
    )
    return path


def test_contenders_in_order(cache: NodepoolCache, znodes: PoolZnodes, node_id: str) -> None:
    assert not cache.nodes.is_locked(node_id)
    first = contend(znodes, node_id, "ffff__lock__")
    second = contend(znodes, node_id, "0000__lock__")
    wait_for("both are seen", lambda: len(cache.nodes.contenders(node_id)) == 2)
    assert cache.nodes.contenders(node_id) == [path.rpartition("/")[2] for path in (first, second)]
    znodes.kazoo.delete(first)
    wait_for("one left", lambda: len(cache.nodes.contenders(node_id)) == 1)
    assert cache.nodes.is_locked(node_id)
    znodes.kazoo.delete(second)
    wait_for("it is free", lambda: not cache.nodes.is_locked(node_id))
    assert cache.nodes.has_lock_dir(node_id)
    znodes.kazoo.delete(paths.node_lock(node_id))
    wait_for("the directory is gone", lambda: not cache.nodes.has_lock_dir(node_id))


def test_changes_under_a_foreign_lock_are_read_at_its_release(
    cache: NodepoolCache, znodes: PoolZnodes, node_id: str, client: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zuul writes `in-use` and `used` under its lock: one read for both."""
    contender = contend(znodes, node_id)
    wait_for("the lock is seen", lambda: cache.nodes.is_locked(node_id))
    reads = count_reads(client, monkeypatch)
    heard: list[tuple[str, str]] = []
    cache.nodes.add_listener(lambda i: heard.append((i, state(cache, node_id))))
    znodes.change_node(node_id, state="in-use")
    znodes.change_node(node_id, state="used")
    caught_up(cache, znodes)
    assert state(cache, node_id) == "ready"
    assert paths.node(node_id) not in reads
    znodes.kazoo.delete(contender)
    wait_for("it was read", lambda: state(cache, node_id) == "used")
    assert reads.count(paths.node(node_id)) == 1
    told = [what for what in heard if what[0] == node_id]
    assert told == [(node_id, "used")], "listeners hear of the release when the record is known"


def state(cache: NodepoolCache, node_id: str) -> str:
    node = cache.nodes.get(node_id)
    return "" if node is None else node.state


def test_stale_records_on_demand(cache: NodepoolCache, znodes: PoolZnodes, node_id: str) -> None:
    """Statistics want to see what is in use."""
    contend(znodes, node_id)
    wait_for("the lock is seen", lambda: cache.nodes.is_locked(node_id))
    znodes.change_node(node_id, state="in-use")
    caught_up(cache, znodes)
    assert state(cache, node_id) == "ready"
    cache.nodes.refresh_stale()
    assert cache.wait_settled(30)
    assert state(cache, node_id) == "in-use"


def test_release_without_a_change(
    cache: NodepoolCache, znodes: PoolZnodes, node_id: str, client: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    contender = contend(znodes, node_id)
    wait_for("the lock is seen", lambda: cache.nodes.is_locked(node_id))
    reads = count_reads(client, monkeypatch)
    heard: list[str] = []
    cache.nodes.add_listener(heard.append)
    znodes.kazoo.delete(contender)
    wait_for("the release is told", lambda: heard)
    assert (heard, reads) == ([node_id], [])


def test_node_that_goes_under_a_foreign_lock(cache: NodepoolCache, znodes: PoolZnodes, node_id: str) -> None:
    contend(znodes, node_id)
    znodes.change_node(node_id, state="used")
    znodes.kazoo.delete(paths.node(node_id), recursive=True)
    wait_for("it is gone", lambda: cache.nodes.get(node_id) is None)
    assert not cache.nodes.is_locked(node_id)
    assert not cache.nodes.has_lock_dir(node_id)
    cache.nodes.refresh_stale()
    assert cache.wait_settled(30)


def test_own_write_and_release_in_one(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release of a lock by our own transaction: listeners hear of it, and nothing is read."""
    node = Node("small")
    zk.storeNode(node)
    node.state = "building"
    zk.nodes.lock_and_save(node)
    wait_for("the lock is seen", lambda: cache.nodes.is_locked(node.key))
    request_id = znodes.submit(["small"])
    request = zk.getNodeRequest(request_id)
    assert request is not None
    zk.requests.lock_and_save(request)
    reads = count_reads(zk.client, monkeypatch)
    heard: list[tuple[str, str, bool]] = []
    cache.nodes.add_listener(lambda i: heard.append((i, state(cache, i), cache.nodes.is_locked(i))))
    node.state, request.state = "ready", "fulfilled"
    zk.requests.finish(request, [node], nodes_too=True)
    wait_for("the release is told", lambda: heard)
    assert heard[-1] == (node.id, "ready", False)
    caught_up(cache, znodes)
    assert paths.node(node.key) not in reads


def test_events_that_overtake_what_is_read(
    make_client: Callable[..., ZooKeeperClient], znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While everything is read anew, an event is newer than an answer that comes after it."""
    ids = [znodes.create_node(READY_NODE) for _ in range(3)]
    taken, left, untouched = ids
    contend(znodes, left, "gone__lock__")
    contend(znodes, untouched, "stay__lock__")
    (gone,) = znodes.node_lockers(left)
    client = make_client()
    call = client.kazoo.call

    def overtaking(request: Any, reply: Reply) -> Reply:
        if not isinstance(request, MultiRead):
            return call(request, reply)

        def answer(result: Any, error: BaseException | None) -> None:
            event = client.kazoo.watch_function(paths.node(taken))
            if event is not None:
                event(CREATED, f"{paths.node_lock(taken)}/new__lock__0000000000")
                event(DELETED, f"{paths.node_lock(left)}/{gone}")
            reply._finish(result, error)

        return call(request, Reply(answer))

    monkeypatch.setattr(client.kazoo, "call", overtaking)
    cache = NodepoolCache(client)
    assert cache.wait_ready(30)
    assert [cache.nodes.is_locked(node_id) for node_id in ids] == [True, False, True]
    assert [cache.nodes.has_lock_dir(node_id) for node_id in ids] == [True, True, True]
