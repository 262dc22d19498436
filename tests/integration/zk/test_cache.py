# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.cache: copies that follow what is written, locks, own writes, lost connections and sessions."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from nodepool.exceptions import ZKConflict
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.connection import CREATED, DELETED, Reply
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import READY_NODE, PoolZnodes
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import present, wait_for
from tests.support.zk_reads import count_reads


def caught_up(cache: NodepoolCache, znodes: PoolZnodes) -> None:
    """Returns when the cache has seen all that happened before: events keep their order."""
    marker = znodes.create_node(READY_NODE)
    wait_for("the marker is there", lambda: cache.nodes.get(marker) is not None)
    znodes.kazoo.delete(paths.node(marker))
    wait_for("the marker is gone", lambda: cache.nodes.get(marker) is None)


def stored(zk: ZooKeeper, label: str = "small") -> Node:
    """A new node of our own."""
    node = Node(label)
    zk.storeNode(node)
    return node


def comment_of(cache: NodepoolCache, node: Node) -> object:
    """What the cache has as a node's comment; None = no comment, or no node."""
    cached = cache.nodes.get(node.key)
    return None if cached is None else cached.comment


# -- writes of others


def test_foreign_records_come_change_and_go(zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes) -> None:
    """Also together with our own, from several threads."""
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
    znodes.change_node(foreign[0], provider="cloud")
    wait_for("it changed", lambda: [node.id for node in cache.nodes.values() if node.provider] == foreign[:1])
    znodes.kazoo.delete(paths.node(foreign[0]))
    wait_for("it is gone", lambda: cache.nodes.get(foreign[0]) is None)
    request_id = znodes.submit(["small"])
    wait_for("it is there", lambda: cache.requests.get(request_id) is not None)
    znodes.delete_request(request_id)
    wait_for("it is gone", lambda: cache.requests.get(request_id) is None)


def test_burst_of_changes(cache: NodepoolCache, znodes: PoolZnodes) -> None:
    """It ends with the last one."""
    node_id = znodes.create_node(READY_NODE)
    for number in range(100):
        znodes.kazoo.set_async(paths.node(node_id), json.dumps({"state": "ready", "comment": number}).encode())
    wait_for("the last change", lambda: [node.comment for node in cache.nodes.values()] == [99])
    assert (cache.wait_settled(30), cache.nodes.pending_reads) == (True, 0)


@pytest.mark.parametrize("value", [b"", b"garbage", b"[]", b'{"state": "odd"}', b'{"no": "state"}', b"\xff" * 10])
def test_bad_records_are_skipped(
    value: bytes, cache: NodepoolCache, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    """Others go on; a bad record is logged once, and taken when it is good."""
    bad = znodes.create_node(value)
    caught_up(cache, znodes)
    assert cache.nodes.get(bad) is None
    assert (cache.nodes.empty_ids() == [bad]) is (value == b"")
    assert caplog.text.count(f"Ignoring /nodepool/nodes/{bad}") == (value != b"")
    for data, shown in ((READY_NODE, True), (b"garbage", False)):
        znodes.kazoo.set(paths.node(bad), data)
        wait_for("the change is seen", lambda shown=shown: (cache.nodes.get(bad) is not None) is shown)  # type: ignore[misc]
        assert cache.nodes.empty_ids() == []
    znodes.kazoo.delete(paths.node(bad))
    caught_up(cache, znodes)


def test_start(make_client: Callable[..., ZooKeeperClient], znodes: PoolZnodes) -> None:
    """More records than fit in a few packets, bad ones, and a child named lock (reference/zookeeper 2)."""
    names = [
        znodes.kazoo.create_async(f"{paths.NODES}/", READY_NODE, sequence=True, makepath=True) for _ in range(1500)
    ]
    ids = {name.get(30).rsplit("/", 1)[1] for name in names}
    empty = znodes.create_node(b"")
    for value in (b"garbage", b'{"state": "ready", "state_time": 1' + b"0" * 400 + b"}", b"[1]"):
        znodes.create_node(value)
        znodes.submit_raw(value)
    znodes.kazoo.create("/nodepool/nodes/lock", b"")
    znodes.kazoo.create("/nodepool/components/pool/x", b"garbage", makepath=True)
    cache = NodepoolCache(make_client())
    assert (cache.wait_ready(30), cache.ready) == (True, True)
    assert (set(cache.nodes.ids()), cache.nodes.empty_ids(), cache.requests.ids()) == (ids, [empty], [])


# -- our own writes are known without being read back


def test_own_writes_are_not_read_back(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = count_reads(zk.client, monkeypatch)
    node = stored(zk)
    for state in ("init", "building", "ready"):
        if state != node.state:
            node.state = state
            zk.storeNode(node)
        cached = cache.nodes.get(node.key)
        assert cached is not None, "known as soon as the answer is there"
        assert (cached is node, cached.state, cached.type, cached.version) == (False, state, ["small"], node.version)
    cached, node.comment, node.type = cache.nodes.get(node.key), "changed", ["other"]
    assert cached is not None
    assert (cached.comment, cached.type) == (None, ["small"]), "the writer may go on changing its record"
    request = NodeRequest()
    zk.storeNodeRequest(request, "900")
    request.state = "pending"
    zk.requests.send_lock(request)()
    request.state = "fulfilled"
    zk.requests.finish(request)
    known = present(cache.requests.get(request.key))
    assert (known.state, known.version) == ("fulfilled", 2)
    caught_up(cache, znodes)
    assert [path for path in reads if path.startswith((paths.REQUESTS, paths.node(node.key)))] == []


def test_own_write_that_failed(zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes) -> None:
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
    node, kazoo = stored(zk), zk.client.kazoo
    reads = count_reads(zk.client, monkeypatch)
    in_event, go_on = threading.Event(), threading.Event()
    on_event = present(kazoo.watch_function(paths.node(node.key)))

    def slow(event: int, path: str) -> None:
        on_event(event, path)
        if not in_event.is_set():
            in_event.set()
            go_on.wait(30)

    monkeypatch.setattr(kazoo, "watch_function", lambda path: slow)
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
    assert (reads.count(paths.node(node.key)), state(cache, node.key)) == (1, "building")


def test_foreign_event_while_a_write_is_announced(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event more than we have writes: the record is read after the answer. The same for creations."""
    node = stored(zk)
    reads = count_reads(zk.client, monkeypatch)
    cache.nodes.expect(node.key)
    for comment in ("first", "second"):
        znodes.change_node(node.key, comment=comment)
        caught_up(cache, znodes)
        assert comment_of(cache, node) is None
    written = node.copy()
    written.mzxid, written.comment = 1, "ours"
    cache.nodes.settle(node.key, written)
    wait_for("the newest record", lambda: comment_of(cache, node) == "second")
    assert reads.count(paths.node(node.key)) == 1
    cache.nodes.expect_create()
    foreign = znodes.create_node(READY_NODE)
    # A request instead of a node: the marker must not be held back too.
    marker = znodes.submit(["small"])
    wait_for("events came", lambda: cache.requests.get(marker) is not None)
    assert cache.nodes.get(foreign) is None
    cache.nodes.settle_create(None, None)
    wait_for("it is read now", lambda: cache.nodes.get(foreign) is not None)


# -- locks of nodes


@pytest.fixture
def node_id(cache: NodepoolCache, znodes: PoolZnodes) -> str:
    made = znodes.create_node(READY_NODE)
    wait_for("the node is known", lambda: cache.nodes.get(made) is not None)
    return made


def contend(znodes: PoolZnodes, node_id: str, name: str = "ffff__lock__") -> str:
    path = f"{paths.node_lock(node_id)}/{name}"
    made: str = znodes.kazoo.create(path, b"", ephemeral=True, sequence=True, makepath=True)
    return made


def state(cache: NodepoolCache, node_id: str) -> str:
    node = cache.nodes.get(node_id)
    return "" if node is None else node.state


def test_contenders_in_order(cache: NodepoolCache, znodes: PoolZnodes, node_id: str) -> None:
    assert not cache.nodes.is_locked(node_id)
    first, second = contend(znodes, node_id, "ffff__lock__"), contend(znodes, node_id, "0000__lock__")
    wait_for("both are seen", lambda: len(cache.nodes.contenders(node_id)) == 2)
    assert cache.nodes.contenders(node_id) == [path.rpartition("/")[2] for path in (first, second)]
    for path, left in ((first, 1), (second, 0)):
        znodes.kazoo.delete(path)
        wait_for("it is gone", lambda left=left: len(cache.nodes.contenders(node_id)) == left)  # type: ignore[misc]
        assert cache.nodes.is_locked(node_id) is bool(left)
    assert cache.nodes.has_lock_dir(node_id)
    znodes.kazoo.delete(paths.node_lock(node_id))
    wait_for("the directory is gone", lambda: not cache.nodes.has_lock_dir(node_id))


def test_changes_under_a_foreign_lock(
    cache: NodepoolCache, znodes: PoolZnodes, node_id: str, client: ZooKeeperClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zuul writes `in-use` and `used` under its lock: one read for both when it is released, or on demand."""
    reads = count_reads(client, monkeypatch)
    heard: list[tuple[str, str]] = []
    cache.nodes.add_listener(lambda i: heard.append((i, state(cache, i))))

    def lock() -> str:
        contender = contend(znodes, node_id)
        wait_for("the lock is seen", lambda: cache.nodes.is_locked(node_id))
        heard.clear()
        return contender

    contender = lock()
    for written in ("in-use", "used"):
        znodes.change_node(node_id, state=written)
    caught_up(cache, znodes)
    assert (state(cache, node_id), paths.node(node_id) in reads) == ("ready", False)
    znodes.kazoo.delete(contender)
    wait_for("it was read", lambda: state(cache, node_id) == "used")
    assert reads.count(paths.node(node_id)) == 1
    told = [what for what in heard if what[0] == node_id]
    assert told == [(node_id, "used")], "listeners hear of the release when the record is known"
    contender = lock()
    znodes.kazoo.delete(contender)
    wait_for("a release without a change is heard of", lambda: (node_id, "used") in heard)
    assert reads.count(paths.node(node_id)) == 1
    lock()
    znodes.change_node(node_id, state="in-use")
    caught_up(cache, znodes)
    assert state(cache, node_id) == "used"
    cache.nodes.refresh_stale()
    assert cache.wait_settled(30)
    assert state(cache, node_id) == "in-use", "statistics want to see what is in use"
    znodes.change_node(node_id, state="used")
    znodes.kazoo.delete(paths.node(node_id), recursive=True)
    wait_for("it is gone", lambda: cache.nodes.get(node_id) is None)
    assert (cache.nodes.is_locked(node_id), cache.nodes.has_lock_dir(node_id)) == (False, False)
    cache.nodes.refresh_stale()
    assert cache.wait_settled(30)


def test_own_write_and_release_in_one(
    zk: ZooKeeper, cache: NodepoolCache, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release of a lock by our own transaction: listeners hear of it, and nothing is read."""
    node = stored(zk)
    node.state = "building"
    zk.nodes.lock_and_save(node)
    wait_for("the lock is seen", lambda: cache.nodes.is_locked(node.key))
    request = present(zk.getNodeRequest(znodes.submit(["small"])))
    zk.requests.send_lock(request)()
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
    for node_id in (left, untouched):
        contend(znodes, node_id)
    (gone,) = znodes.node_lockers(left)
    client = make_client()
    call = client.kazoo.call

    def overtaking(request: Any, reply: Reply) -> Reply:
        if not hasattr(request, "operations"):
            return call(request, reply)

        def answer(result: Any, error: BaseException | None) -> None:
            event = client.kazoo.watch_function(paths.node(taken))
            if event is not None:
                event(CREATED, f"{paths.node_lock(taken)}/new__lock__0000000000")
                event(DELETED, f"{paths.node_lock(left)}/{gone}")
            reply.set(result) if error is None else reply.set_exception(error)

        return call(request, Reply(answer))

    monkeypatch.setattr(client.kazoo, "call", overtaking)
    cache = NodepoolCache(client)
    assert cache.wait_ready(30)
    assert [cache.nodes.is_locked(node_id) for node_id in ids] == [True, False, True]
    assert [cache.nodes.has_lock_dir(node_id) for node_id in ids] == [True, True, True]


# -- lost connections and sessions


def test_changes_without_a_connection(
    shaky: ZooKeeperClient, znodes: PoolZnodes, cut_off: Callable[[], AbstractContextManager[None]]
) -> None:
    """After it is back the cache is as ZooKeeper is: new, changed and deleted records, locks too."""
    kept, gone, locked, unlocked = (znodes.create_node(READY_NODE) for _ in range(4))
    bad = znodes.create_node(b"garbage")
    contender = contend(znodes, unlocked)
    gone_request = znodes.submit(["small"])
    cache = NodepoolCache(shaky)
    assert cache.wait_ready(30)
    told: list[str] = []
    cache.nodes.add_listener(told.append)
    assert cache.nodes.is_locked(unlocked)
    with cut_off():
        wait_for("the loss is seen", lambda: not cache.ready)
        znodes.kazoo.delete(paths.node(gone))
        znodes.kazoo.delete(paths.node(bad))
        znodes.delete_request(gone_request)
        new, new_request = znodes.create_node(READY_NODE), znodes.submit(["small"])
        znodes.change_node(kept, comment="changed")
        contend(znodes, locked)
        znodes.kazoo.delete(contender)
    wait_for("all is ready", lambda: cache.ready)
    assert sorted(cache.nodes.ids()) == sorted([kept, locked, unlocked, new])
    assert cache.requests.ids() == [new_request]
    assert [node.id for node in cache.nodes.values() if node.comment == "changed"] == [kept]
    assert [cache.nodes.is_locked(i) for i in (kept, locked, unlocked)] == [False, True, False]
    assert [cache.nodes.has_lock_dir(i) for i in (kept, locked, unlocked)] == [False, True, True]
    assert {gone, new, kept, ""} <= set(told)
    znodes.change_node(new, comment="watched")
    wait_for("it is watched again", lambda: "watched" in [node.comment for node in cache.nodes.values()])


def test_lost_session(
    zk: ZooKeeper, cache: NodepoolCache, lose_session: Callable[..., None], znodes: PoolZnodes
) -> None:
    """What hung on the session is gone; persistent records are not."""
    node = stored(zk)
    zk.lockNode(node)
    zk.storeNodeRequest(NodeRequest())
    wait_for("the lock is known", lambda: cache.nodes.is_locked(node.key))
    lose_session(zk.client)
    wait_for("the cache is complete", lambda: cache.ready)
    assert (cache.nodes.ids(), cache.requests.ids(), cache.nodes.is_locked(node.key)) == ([node.id], [], False)
    caught_up(cache, znodes)


def test_connection_lost_while_writing(shaky: ZooKeeperClient, proxy: TcpProxy, znodes: PoolZnodes) -> None:
    """Announced writes whose answers do not come leave nothing behind that would hide later events."""
    cache = NodepoolCache(shaky)
    assert cache.wait_ready(30)
    zk = ZooKeeper(shaky, cache)
    node, other = stored(zk), Node("large")
    proxy.mute = True
    node.state = "building"
    writes = [zk.nodes.transaction() for _ in range(2)]
    writes[0].set_record(paths.node(node.key), node, zk.nodes.encode(node))
    writes[1].create_record(f"{paths.NODES}/", other, zk.nodes.encode(other))
    replies = [tx.send() for tx in writes]
    wait_for("both were written", lambda: len(znodes.nodes()) == 2 and znodes.nodes("building"))
    proxy.take_down()
    assert [reply.wait(30) for reply in replies] == [True, True]
    proxy.mute = False
    proxy.bring_up()
    wait_for("the cache is complete", lambda: cache.ready and len(cache.nodes) == 2)
    foreign = znodes.create_node(READY_NODE)
    znodes.change_node(node.key, comment="foreign")
    wait_for("events are followed", lambda: comment_of(cache, node) == "foreign" and cache.nodes.get(foreign))
