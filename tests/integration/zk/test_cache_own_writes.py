# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.cache: our own writes are known without being read back."""

from __future__ import annotations

import threading

import pytest

from nodepool.exceptions import ZKConflict
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import READY_NODE, PoolZnodes
from tests.support.wait import wait_for
from tests.support.zk_cache import caught_up, comment_of, stored
from tests.support.zk_reads import count_reads


def test_own_creation_is_not_read_back(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = count_reads(zk.client, monkeypatch)
    node = stored(zk)
    cached = cache.nodes.get(node.key)
    assert cached is not None, "known as soon as the answer is there"
    assert cached is not node
    assert (cached.type, cached.version) == (["small"], 0)
    caught_up(cache, znodes)
    assert paths.node(node.key) not in reads


def test_own_writes_are_not_read_back(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = stored(zk)
    reads = count_reads(zk.client, monkeypatch)
    for state in ("building", "ready"):
        node.state = state
        zk.storeNode(node)
        cached = cache.nodes.get(node.key)
        assert cached is not None
        assert (cached.state, cached.version) == (state, node.version)
    caught_up(cache, znodes)
    assert paths.node(node.key) not in reads


def test_own_requests_are_not_read_back(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = count_reads(zk.client, monkeypatch)
    request = NodeRequest()
    zk.storeNodeRequest(request, "900")
    request.state = "pending"
    zk.requests.lock_and_save(request)
    request.state = "fulfilled"
    zk.requests.finish(request)
    cached = cache.requests.get(request.key)
    assert cached is not None
    assert (cached.state, cached.version) == ("fulfilled", 2)
    caught_up(cache, znodes)
    assert [path for path in reads if path.startswith(paths.REQUESTS)] == []


def test_the_writer_may_go_on_changing_its_record(zk: ZooKeeper, cache: NodepoolCache) -> None:
    node = stored(zk)
    node.comment, node.type = "changed", ["other"]
    cached = cache.nodes.get(node.key)
    assert cached is not None
    assert (cached.comment, cached.type) == (None, ["small"])


def test_write_that_failed(zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes) -> None:
    node = stored(zk)
    znodes.change_node(node.key, comment="foreign")
    node.state = "building"
    with pytest.raises(ZKConflict, match="BadVersion"):
        zk.storeNode(node)
    wait_for("the foreign record", lambda: comment_of(cache, node) == "foreign")


def test_foreign_write_between_our_write_and_its_answer(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler of our answer comes late: the foreign event that came before is not taken for our own."""
    node = stored(zk)
    reads = count_reads(zk.client, monkeypatch)
    in_event, go_on = threading.Event(), threading.Event()
    on_event = zk.client.kazoo._recursive[paths.NODES]

    def slow(event: int, path: str) -> None:
        on_event(event, path)
        if not in_event.is_set():
            in_event.set()
            go_on.wait(30)

    zk.client.kazoo._recursive[paths.NODES] = slow
    node.state = "building"
    tx = zk.nodes.transaction()
    tx.set_record(paths.node(node.key), node, zk.nodes.encode(node))
    reply = tx.send()
    assert in_event.wait(30)
    # Our answer is on its way behind this event; what follows is a foreign event.
    znodes.change_node(node.key, comment="foreign")
    go_on.set()
    reply.get(30)
    wait_for("the foreign record", lambda: comment_of(cache, node) == "foreign")
    assert reads.count(paths.node(node.key)) == 1
    cached = cache.nodes.get(node.key)
    assert cached is not None
    assert cached.state == "building"


def test_foreign_event_while_a_write_is_announced(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event more than we have writes: the record is read after the answer."""
    node = stored(zk)
    record_id = node.key
    reads = count_reads(zk.client, monkeypatch)
    cache.nodes.expect(record_id)
    znodes.change_node(record_id, comment="first")
    caught_up(cache, znodes)
    assert comment_of(cache, node) is None
    znodes.change_node(record_id, comment="second")
    caught_up(cache, znodes)
    written = node.copy()
    written.mzxid, written.comment = 1, "ours"
    cache.nodes.settle(record_id, written)
    wait_for("the newest record", lambda: comment_of(cache, node) == "second")
    assert reads.count(paths.node(record_id)) == 1


def test_foreign_creation_while_we_create(zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes) -> None:
    cache.nodes.expect_create()
    foreign = znodes.create_node(READY_NODE)
    # A request instead of a node: the marker must not be held back too.
    marker = znodes.submit(["small"])
    wait_for("events came", lambda: cache.requests.get(marker) is not None)
    assert cache.nodes.get(foreign) is None
    cache.nodes.settle_create(None, None)
    wait_for("it is read now", lambda: cache.nodes.get(foreign) is not None)
