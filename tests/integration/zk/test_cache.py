# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.cache: copies that follow ZooKeeper and our own writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.serialization import Exists

from nodepool.exceptions import ZKConflict
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodepool_cache import NodepoolCache
from nodepool.zk.protocol import Reply
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_for
from tests.support.zk_reads import count_reads
from tests.support.zookeeper import ZooKeeperServer

READY = json.dumps({"state": "ready", "type": ["small"]}).encode()


def caught_up(cache: NodepoolCache, znodes: PoolZnodes) -> None:
    """Returns when the cache has seen all that happened before: events keep their order."""
    marker = znodes.create_node(READY)
    wait_for("the marker is there", lambda: cache.nodes.get(marker) is not None)
    znodes.kazoo.delete(paths.node(marker))
    wait_for("the marker is gone", lambda: cache.nodes.get(marker) is None)


def stored(zk: ZooKeeper, label: str = "small") -> Node:
    node = Node(label)
    zk.storeNode(node)
    return node


# -- own writes


def test_own_creation_is_not_read_back(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = count_reads(zk.client, monkeypatch)
    node = stored(zk)
    cached = cache.nodes.get(node.id or "")
    assert cached is not None, "known as soon as the answer is there"
    assert cached is not node
    assert (cached.type, cached.version) == (["small"], 0)
    caught_up(cache, znodes)
    assert paths.node(node.id or "") not in reads


def test_own_writes_are_not_read_back(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = stored(zk)
    reads = count_reads(zk.client, monkeypatch)
    for state in ("building", "ready"):
        node.state = state
        zk.storeNode(node)
        cached = cache.nodes.get(node.id or "")
        assert cached is not None
        assert (cached.state, cached.version) == (state, node.version)
    caught_up(cache, znodes)
    assert paths.node(node.id or "") not in reads


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
    cached = cache.requests.get(request.id or "")
    assert cached is not None
    assert (cached.state, cached.version) == ("fulfilled", 2)
    caught_up(cache, znodes)
    assert [path for path in reads if path.startswith(paths.REQUESTS)] == []


def test_the_writer_may_go_on_changing_its_record(zk: ZooKeeper, cache: NodepoolCache) -> None:
    node = stored(zk)
    node.comment, node.type = "changed", ["other"]
    cached = cache.nodes.get(node.id or "")
    assert cached is not None
    assert (cached.comment, cached.type) == (None, ["small"])


def test_write_that_failed(zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes) -> None:
    node = stored(zk)
    znodes.change_node(node.id or "", comment="foreign")
    node.state = "building"
    with pytest.raises(ZKConflict, match="BadVersion"):
        zk.storeNode(node)
    wait_for("the foreign record", lambda: _comment(cache, node) == "foreign")


def _comment(cache: NodepoolCache, node: Node) -> object:
    cached = cache.nodes.get(node.id or "")
    return None if cached is None else cached.comment


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
    tx.set_record(paths.node(node.id or ""), node, zk.nodes.encode(node))
    reply = tx.send()
    assert in_event.wait(30)
    # Our answer is on its way behind this event; what follows is a foreign event.
    znodes.change_node(node.id or "", comment="foreign")
    go_on.set()
    reply.get(30)
    wait_for("the foreign record", lambda: _comment(cache, node) == "foreign")
    assert reads.count(paths.node(node.id or "")) == 1
    cached = cache.nodes.get(node.id or "")
    assert cached is not None
    assert cached.state == "building"


def test_foreign_event_while_a_write_is_announced(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event more than we have writes: the record is read after the answer."""
    node = stored(zk)
    record_id = node.id or ""
    reads = count_reads(zk.client, monkeypatch)
    cache.nodes.expect(record_id)
    znodes.change_node(record_id, comment="first")
    caught_up(cache, znodes)
    assert _comment(cache, node) is None
    znodes.change_node(record_id, comment="second")
    caught_up(cache, znodes)
    written = node.copy()
    written.mzxid, written.comment = 1, "ours"
    cache.nodes.settle(record_id, written)
    wait_for("the newest record", lambda: _comment(cache, node) == "second")
    assert reads.count(paths.node(record_id)) == 1


# -- foreign writes


def test_foreign_records_come_change_and_go(cache: NodepoolCache, znodes: PoolZnodes) -> None:
    node_id = znodes.create_node(READY)
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


def test_foreign_creation_while_we_create(zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes) -> None:
    cache.nodes.expect_create()
    foreign = znodes.create_node(READY)
    # A request instead of a node: the marker must not be held back too.
    marker = znodes.submit(["small"])
    wait_for("events came", lambda: cache.requests.get(marker) is not None)
    assert cache.nodes.get(foreign) is None
    cache.nodes.settle_create(None, None)
    wait_for("it is read now", lambda: cache.nodes.get(foreign) is not None)


def test_many_at_once(zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes) -> None:
    """Our creations and foreign ones, at the same time from several threads."""
    foreign: list[str] = []

    def create_foreign() -> None:
        foreign.extend(znodes.create_node(READY) for _ in range(40))

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
    node_id = znodes.create_node(READY)
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
    znodes.kazoo.set(paths.node(bad), READY)
    wait_for("it is good now", lambda: cache.nodes.get(bad) is not None)
    assert cache.nodes.empty_ids() == []
    znodes.kazoo.set(paths.node(bad), b"garbage")
    wait_for("it is bad again", lambda: cache.nodes.get(bad) is None)
    assert cache.nodes.empty_ids() == []
    znodes.kazoo.delete(paths.node(bad))
    caught_up(cache, znodes)


def test_bad_records_at_the_start(make_client: Callable[..., ZooKeeperClient], znodes: PoolZnodes) -> None:
    good = znodes.create_node(READY)
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
    """zookeeper.md 2"""
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


# -- lost connections


def test_changes_without_a_connection(
    shaky: ZooKeeperClient, proxy: TcpProxy, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    """After it is back the cache is as ZooKeeper is: new, changed and deleted records, locks too."""
    kept, gone, locked, unlocked = (znodes.create_node(READY) for _ in range(4))
    bad = znodes.create_node(b"garbage")
    znodes.kazoo.create(f"{paths.node_lock(unlocked)}/x__lock__0000000000", b"", makepath=True)
    gone_request = znodes.submit(["small"])
    cache = NodepoolCache(shaky)
    assert cache.wait_ready(30)
    told: list[str] = []
    cache.nodes.add_listener(told.append)
    assert cache.nodes.is_locked(unlocked)
    proxy.accepting = False
    proxy.cut()
    wait_for("the loss is seen", lambda: not cache.ready)
    znodes.kazoo.delete(paths.node(gone))
    znodes.kazoo.delete(paths.node(bad))
    znodes.delete_request(gone_request)
    new = znodes.create_node(READY)
    new_request = znodes.submit(["small"])
    znodes.change_node(kept, comment="changed")
    znodes.kazoo.create(f"{paths.node_lock(locked)}/x__lock__0000000000", b"", makepath=True)
    znodes.kazoo.delete(f"{paths.node_lock(unlocked)}/x__lock__0000000000")
    proxy.accepting = True
    assert cache.wait_ready(30)
    wait_for("all is ready", lambda: cache.ready)
    assert sorted(cache.nodes.ids()) == sorted([kept, locked, unlocked, new])
    assert cache.requests.ids() == [new_request]
    found = cache.nodes.get(kept)
    assert found is not None
    assert found.comment == "changed"
    assert [cache.nodes.is_locked(i) for i in (kept, locked, unlocked)] == [False, True, False]
    assert [cache.nodes.has_lock_dir(i) for i in (kept, locked, unlocked)] == [False, True, True]
    assert {gone, new, kept, ""} <= set(told)
    znodes.change_node(new, comment="watched")
    wait_for("it is watched again", lambda: "watched" in [node.comment for node in cache.nodes.values()])


def test_lost_session(zk: ZooKeeper, cache: NodepoolCache, zookeeper: ZooKeeperServer, znodes: PoolZnodes) -> None:
    """What hung on the session is gone; persistent records are not."""
    node = stored(zk)
    zk.lockNode(node)
    request = NodeRequest()
    zk.storeNodeRequest(request)
    wait_for("the lock is known", lambda: cache.nodes.is_locked(node.id or ""))
    expire_session(zookeeper.plain_hosts(), zk.client.kazoo.client_id)
    wait_for("the new session", lambda: zk.client.session_epoch == 1 and zk.client.connected and cache.ready)
    assert cache.nodes.ids() == [node.id]
    assert cache.requests.ids() == []
    assert not cache.nodes.is_locked(node.id or "")
    caught_up(cache, znodes)


def test_connection_lost_while_writing(shaky: ZooKeeperClient, proxy: TcpProxy, znodes: PoolZnodes) -> None:
    """Announced writes whose answers do not come leave nothing behind that would hide later events."""
    cache = NodepoolCache(shaky)
    assert cache.wait_ready(30)
    zk = ZooKeeper(shaky, cache)
    node = stored(zk)
    proxy.mute = True
    node.state = "building"
    tx = zk.nodes.transaction()
    tx.set_record(paths.node(node.id or ""), node, zk.nodes.encode(node))
    reply = tx.send()
    create = zk.nodes.transaction()
    other = Node("large")
    create.create_record(f"{paths.NODES}/", other, zk.nodes.encode(other))
    created = create.send()
    wait_for("both were written", lambda: len(znodes.nodes()) == 2 and znodes.nodes("building"))
    proxy.accepting = False
    proxy.cut()
    assert reply.wait(30)
    assert created.wait(30)
    proxy.mute = False
    proxy.accepting = True
    wait_for("the cache is complete", lambda: cache.ready and len(cache.nodes) == 2)
    assert cache.nodes._expected == {}
    assert cache.nodes._creating == 0
    znodes.change_node(node.id or "", comment="foreign")
    wait_for("events are followed", lambda: _comment(cache, node) == "foreign")


# -- many records


def test_start_with_many_records(make_client: Callable[..., ZooKeeperClient], znodes: PoolZnodes) -> None:
    """More than fit in Kazoo's socket pair, which holds some 280 calls, and in a few packets."""
    names = [znodes.kazoo.create_async(f"{paths.NODES}/", READY, sequence=True, makepath=True) for _ in range(1500)]
    ids = {name.get(30).rsplit("/", 1)[1] for name in names}
    cache = NodepoolCache(make_client())
    assert cache.wait_ready(30)
    assert set(cache.nodes.ids()) == ids


def test_calls_from_the_connection_thread(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """A callback may make any number of calls, also while other threads fill Kazoo's queue: nothing blocks."""
    znodes.kazoo.create("/here", b"")
    left = threading.Semaphore(0)

    def many(_: object, __: BaseException | None) -> None:
        for _number in range(1000):
            client.kazoo.call(Exists(client.kazoo.chrooted("/here"), None), Reply(lambda *_: left.release()))

    client.kazoo.call(Exists(client.kazoo.chrooted("/here"), None), Reply(many))
    for _ in range(1000):
        client.kazoo.call(Exists(client.kazoo.chrooted("/here"), None), Reply(lambda *_: left.release()))
    assert all(left.acquire(timeout=30) for _ in range(2000))


def test_calls_end_with_their_connection(shaky: ZooKeeperClient, proxy: TcpProxy, znodes: PoolZnodes) -> None:
    """What the connection thread had still to send when the connection broke is answered by an error, once each."""
    znodes.kazoo.create("/here", b"")
    answers: list[BaseException | None] = []

    def many(_: object, __: BaseException | None) -> None:
        proxy.cut()
        for _number in range(500):
            shaky.kazoo.call(Exists(shaky.kazoo.chrooted("/here"), None), Reply(lambda _, error: answers.append(error)))

    shaky.kazoo.call(Exists(shaky.kazoo.chrooted("/here"), None), Reply(many))
    wait_for("all are answered", lambda: len(answers) == 500)
    assert any(isinstance(error, ConnectionLoss) for error in answers)
