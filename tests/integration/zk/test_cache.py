# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.cache: copies that follow what others write. Own writes, lost connections: the files beside."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

from nodepool.zk import paths
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import READY_NODE, PoolZnodes
from tests.support.wait import wait_for
from tests.support.zk_cache import caught_up, stored

# -- writes of others


def test_foreign_records_come_change_and_go(cache: NodepoolCache, znodes: PoolZnodes) -> None:
    node_id = znodes.create_node(READY_NODE)
    wait_for("it is there", lambda: cache.nodes.get(node_id) is not None)
    znodes.change_node(node_id, provider="cloud")
    wait_for("it changed", lambda: [node.provider for node in cache.nodes.values()] == ["cloud"])
    assert (cache.nodes.ids(), len(cache.nodes)) == ([node_id], 1)
    znodes.kazoo.delete(paths.node(node_id))
    wait_for("it is gone", lambda: cache.nodes.get(node_id) is None)


def test_foreign_request(cache: NodepoolCache, znodes: PoolZnodes) -> None:
    request_id = znodes.submit(["small"])
    wait_for("it is there", lambda: cache.requests.get(request_id) is not None)
    znodes.delete_request(request_id)
    wait_for("it is gone", lambda: cache.requests.get(request_id) is None)


def test_many_at_once(zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes) -> None:
    """Our creations and foreign ones, at the same time from several threads."""
    foreign: list[str] = []

    def create_foreign() -> None:
        foreign.extend(znodes.create_node(READY_NODE) for _ in range(40))

    def create_own() -> None:
        for _ in range(40):
            stored(zk)

    threads = [threading.Thread(target=target) for target in (create_foreign, create_own, create_own)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    wait_for("all are there", lambda: len(cache.nodes) == 120)
    assert set(foreign) < set(cache.nodes.ids())
    assert {node.version for node in cache.nodes.values()} == {0}


def test_reads_are_not_repeated_while_one_is_under_way(
    cache: NodepoolCache, znodes: PoolZnodes, client: ZooKeeperClient
) -> None:
    """A burst of changes ends with the last one."""
    node_id = znodes.create_node(READY_NODE)
    for number in range(100):
        znodes.kazoo.set_async(paths.node(node_id), json.dumps({"state": "ready", "comment": number}).encode())
    wait_for("the last change", lambda: [node.comment for node in cache.nodes.values()] == [99])
    assert cache.wait_settled(30)
    assert cache.nodes.pending_reads == 0


# -- records that are none


@pytest.mark.parametrize("value", [b"", b"garbage", b"[]", b'{"state": "odd"}', b'{"no": "state"}', b"\xff" * 10])
def test_bad_records_are_skipped(
    value: bytes, cache: NodepoolCache, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    """Others go on; a bad record is logged once, and taken when it is good."""
    bad = znodes.create_node(value)
    caught_up(cache, znodes)
    assert cache.nodes.get(bad) is None
    assert (cache.nodes.empty_ids() == [bad]) is (value == b"")
    assert caplog.text.count(f"Ignoring /nodepool/nodes/{bad}") == (0 if value == b"" else 1)
    znodes.kazoo.set(paths.node(bad), READY_NODE)
    wait_for("it is good now", lambda: cache.nodes.get(bad) is not None)
    assert cache.nodes.empty_ids() == []
    znodes.kazoo.set(paths.node(bad), b"garbage")
    wait_for("it is bad again", lambda: cache.nodes.get(bad) is None)
    assert cache.nodes.empty_ids() == []
    znodes.kazoo.delete(paths.node(bad))
    caught_up(cache, znodes)


def test_bad_records_at_the_start(make_client: Callable[..., ZooKeeperClient], znodes: PoolZnodes) -> None:
    good = znodes.create_node(READY_NODE)
    empty = znodes.create_node(b"")
    for value in (b"garbage", b'{"state": "ready", "state_time": 1' + b"0" * 400 + b"}", b"[1]"):
        znodes.create_node(value)
        znodes.submit_raw(value)
    znodes.kazoo.create("/nodepool/components/pool/x", b"garbage", makepath=True)
    cache = NodepoolCache(make_client())
    assert cache.wait_ready(30)
    assert (cache.nodes.ids(), cache.nodes.empty_ids()) == ([good], [empty])
    assert cache.requests.ids() == []
    assert cache.ready


def test_child_named_lock_is_no_record(cache: NodepoolCache, znodes: PoolZnodes) -> None:
    """reference/zookeeper 2"""
    znodes.kazoo.create("/nodepool/nodes/lock", b"", makepath=True)
    caught_up(cache, znodes)
    assert cache.nodes.empty_ids() == []


# -- listeners


def test_listener_that_raises(zk: ZooKeeper, cache: NodepoolCache, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def broken(record_id: str) -> None:
        raise KeyError(record_id)

    cache.nodes.add_listener(broken)
    zk.addNodeListener(heard.append)
    node = stored(zk)
    assert heard == [node.id]
    assert "Error in a cache listener" in caplog.text


# -- many records


def test_start_with_many_records(make_client: Callable[..., ZooKeeperClient], znodes: PoolZnodes) -> None:
    """More than fit in Kazoo's socket pair, which holds some 280 calls, and in a few packets."""
    names = [
        znodes.kazoo.create_async(f"{paths.NODES}/", READY_NODE, sequence=True, makepath=True) for _ in range(1500)
    ]
    ids = {name.get(30).rsplit("/", 1)[1] for name in names}
    cache = NodepoolCache(make_client())
    assert cache.wait_ready(30)
    assert set(cache.nodes.ids()) == ids
