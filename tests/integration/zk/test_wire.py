# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.wire and transactions: recursive watches, the order of replies, certain sessions, fences, many reads."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo import exceptions as kazoo
from kazoo.exceptions import BadArgumentsError, ConnectionLoss, NoNodeError
from kazoo.retry import RetryFailedError

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException
from nodepool.model.node import Node
from nodepool.zk import transactions
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.connection import CHANGED, CREATED, DELETED, Reply
from nodepool.zk.transactions import Transaction, TransactionFailed, translate
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import holds_for, wait_for

Seen = list[tuple[Any, ...]]


def watch(client: ZooKeeperClient, path: str) -> Seen:
    """Watches a subtree; returns the list that its events go to."""
    seen: Seen = []
    assert client.kazoo.watch_recursive(path, lambda event, where: seen.append((event, where))).get(30) is True
    return seen


def test_all_below_and_the_root_itself(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """Paths come without the chroot; the root need not exist yet. One that begins like it is another root."""
    seen, longer = watch(client, "/root"), watch(client, "/rooted")
    znodes.kazoo.create("/root/a/b", b"", makepath=True)
    znodes.kazoo.set("/root/a", b"1")
    znodes.kazoo.delete("/root/a/b")
    znodes.kazoo.create("/rooted", b"")
    znodes.kazoo.delete("/root", recursive=True)
    wait_for("all events are there", lambda: (DELETED, "/root") in seen)
    assert seen == [
        *((CREATED, "/root"), (CREATED, "/root/a"), (CREATED, "/root/a/b"), (CHANGED, "/root/a")),
        *((DELETED, "/root/a/b"), (DELETED, "/root/a"), (DELETED, "/root")),
    ]
    assert longer == [(CREATED, "/rooted")]


def test_events_and_replies_keep_their_order(client: ZooKeeperClient) -> None:
    """The event of our own write comes before its answer, and an answer before the next event."""
    kazoo = client.kazoo
    seen = watch(client, "/a")

    def note(what: str) -> Reply:
        return Reply(lambda result, error: seen.append((what,)))

    kazoo.call(kazoo.operations.create("/a"), note("created"))
    kazoo.call(kazoo.operations.set("/a", b"1", -1), note("set"))
    kazoo.call(kazoo.operations.get("/a"), note("read"))
    kazoo.call(kazoo.operations.set("/a", b"2", -1), Reply()).get(30)
    assert seen == [(CREATED, "/a"), ("created",), (CHANGED, "/a"), ("set",), ("read",), (CHANGED, "/a")]


def test_ordinary_watches_beside_it(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """A recipe of Kazoo watches the same znode: both hear of it. Not even sys.exit() in it ends Kazoo's thread."""
    seen = watch(client, "/root")
    znodes.kazoo.create("/root/a", b"", makepath=True)
    data, children, gone = threading.Event(), threading.Event(), threading.Event()

    def leave(_: object) -> None:
        raise SystemExit

    client.kazoo.exists("/root/a", watch=leave)
    client.kazoo.get("/root/a", watch=lambda event: data.set())
    client.kazoo.get_children("/root", watch=lambda event: children.set())
    znodes.kazoo.set("/root/a", b"1")
    assert data.wait(30)
    client.kazoo.exists("/root/a", watch=lambda event: gone.set())
    znodes.kazoo.delete("/root/a")
    assert [event.wait(30) for event in (children, gone)] == [True, True]
    wait_for("all events", lambda: len(seen) == 4)
    assert seen[2:] == [(CHANGED, "/root/a"), (DELETED, "/root/a")]


@pytest.mark.parametrize(("error", "logged"), [(KeyError, True), (ZKConnectionError, False)])
def test_functions_that_raise(
    client: ZooKeeperClient, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture, error: type[Exception], logged: bool
) -> None:
    """The connection lives on. While it is being ended, what is to be asked next is of no use: no mistake."""
    calls: list[str] = []

    def broken(_: object, path: Any) -> None:
        calls.append(path)
        raise error(path)

    client.kazoo.watch_recursive("/root", broken).get(30)
    znodes.kazoo.create("/root", b"")
    znodes.kazoo.create("/root/a", b"")
    wait_for("both events", lambda: calls == ["/root", "/root/a"])
    reply = client.kazoo.call(client.kazoo.operations.get("/root"), Reply(broken))
    assert reply.get(30)[0] == b""
    assert client.kazoo.get("/root")[0] == b""
    assert ("Error while handling a ZooKeeper event for /root" in caplog.text) is logged
    assert ("Error while handling a ZooKeeper reply" in caplog.text) is logged


def test_errors(client: ZooKeeperClient) -> None:
    """What cannot be sent is an error for its caller, and not the end of the connection thread."""
    reply = client.kazoo.call(client.kazoo.operations.get("/nowhere"), Reply())
    assert reply.wait(30)
    with pytest.raises(NoNodeError):
        reply.get()
    with pytest.raises(BadArgumentsError, match="ud800"):
        client.kazoo.exists("/\ud800")
    assert (client.kazoo.exists("/nobody"), client.session_epoch) == (None, 0)


def test_certain_session(make_client: Callable[..., ZooKeeperClient], proxy: TcpProxy, chroot: str) -> None:
    """Without answers for two thirds of its timeout nobody can be sure that a session lives."""
    client = make_client(f"127.0.0.1:{proxy.port}{chroot}", timeout=9.0)
    assert [client.session_is_certain(epoch) for epoch in (0, 1)] == [True, False]
    until = client.kazoo.lease_until
    # Kazoo's own pings are enough.
    holds_for("the session is certain", lambda: client.session_is_certain(0), lambda: time.monotonic() > until + 1)
    proxy.mute = True
    wait_for("it is not certain any more", lambda: not client.session_is_certain(0))
    assert client.session_epoch == 0, "although it is not known to be lost"
    proxy.mute = False
    proxy.cut()
    wait_for("it is certain again", lambda: client.session_is_certain(client.session_epoch))


def test_calls_of_many_threads(make_client: Callable[..., ZooKeeperClient], znodes: PoolZnodes) -> None:
    """Each gets the answer to its own call. A callback may make any number of calls meanwhile: nothing blocks."""
    kazoo = make_client(timeout=60.0).kazoo
    znodes.kazoo.create("/here", b"")
    left = threading.Semaphore(0)

    def many(_: object, __: BaseException | None) -> None:
        for _number in range(1000):
            kazoo.call(kazoo.operations.get("/here"), Reply(lambda *_: left.release()))

    def work(number: int) -> list[int]:
        path, versions = f"/{number}", []
        kazoo.call(kazoo.operations.create(path), Reply()).get(30)
        for turn in range(100):
            # For every tenth the socket has no room at once.
            data = bytes(200_000 if turn % 10 == 9 else turn)
            change = kazoo.operations.set(path, data, turn)
            versions.append(kazoo.call(change, Reply()).get(30).version)
        return versions

    with ThreadPoolExecutor(8) as threads:
        working = [threads.submit(work, number) for number in range(8)]
        kazoo.call(kazoo.operations.get("/here"), Reply(many))
        many(None, None)
        assert all(left.acquire(timeout=30) for _ in range(2000))
        assert [future.result() for future in working] == [list(range(1, 101))] * 8


def test_calls_end_with_their_connection(shaky: ZooKeeperClient, proxy: TcpProxy, znodes: PoolZnodes) -> None:
    """What the connection thread had still to send when the connection broke is answered by an error, once each."""
    znodes.kazoo.create("/here", b"")
    answers: list[BaseException | None] = []

    def many(_: object, __: BaseException | None) -> None:
        proxy.cut()
        for _number in range(500):
            shaky.kazoo.call(shaky.kazoo.operations.get("/here"), Reply(lambda _, error: answers.append(error)))

    shaky.kazoo.call(shaky.kazoo.operations.get("/here"), Reply(many))
    wait_for("all are answered", lambda: len(answers) == 500)
    assert any(isinstance(error, ConnectionLoss) for error in answers)


def test_silent_servers() -> None:
    """F-1: each has its share of the time in which one must be found, else the session would be over before."""
    with ExitStack() as opened:
        # The kernel drops the first packet of a connection to a full backlog.
        silent = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        filler = opened.enter_context(socket.socket())
        filler.setblocking(False)
        filler.connect_ex(silent.getsockname())
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        client = ZooKeeperClient(",".join([place] * 1000), timeout=600.0)
        with ThreadPoolExecutor(1) as daemon:
            connecting = daemon.submit(client.connect)
            wait_for(
                "an attempt has ended", lambda: f"{place} (zookeeper-servers[0]): no answer" in str(client.trouble())
            )
            client.disconnect()
            with pytest.raises(ZKConnectionError):
                connecting.result(30)


# -- transactions: all or nothing; fences; errors; many reads in one packet


def test_results_in_order(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    tx = Transaction(client)
    tx.create("/a")
    index = tx.create("/a/", b"x", flags=2)
    tx.check("/a", 0)
    tx.delete("/a/0000000000")
    results = tx.commit()
    assert results[index] == "/a/0000000000", "without the chroot"
    assert (znodes.children("/"), znodes.children("/a")) == (["a"], [])
    with pytest.raises(ZKException, match="never read"):
        Transaction(client).set_record("/a", Node(), b"{}")


@pytest.mark.parametrize(
    ("path", "version", "error"),
    [("/gone", -1, kazoo.NoNodeError), ("/a", 5, kazoo.BadVersionError), ("/full", -1, kazoo.NotEmptyError)],
)
def test_nothing_is_written_when_one_fails(
    client: ZooKeeperClient, znodes: PoolZnodes, path: str, version: int, error: type[Exception]
) -> None:
    for name in ("/a", "/full", "/full/x"):
        znodes.kazoo.create(name)
    tx = Transaction(client)
    tx.create("/new")
    tx.delete(path, version)
    tx.create("/newer")
    with pytest.raises(TransactionFailed) as caught:
        tx.commit()
    assert (caught.value.path, type(caught.value.error)) == (path, error)
    assert caught.value.lock_dir_mismatch is (error is kazoo.NoNodeError)
    assert znodes.children("/") == ["a", "full"]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("keep", [True, False])
def test_fence(client: ZooKeeperClient, znodes: PoolZnodes, competitor: Competitor, exists: bool, keep: bool) -> None:
    """It passes and leaves the directory, or does not, as asked; if our view was wrong, or it is held, it says so."""

    def fence(exists: bool) -> None:
        tx = Transaction(client)
        tx.fence_lock("/lock", exists=exists, keep=keep)
        tx.commit()

    if exists:
        znodes.kazoo.create("/lock")
    fence(exists)
    assert znodes.children("/") == (["lock"] if keep else [])
    with pytest.raises(TransactionFailed) as caught:
        fence(not keep)
    assert caught.value.lock_dir_mismatch
    competitor.hold("/lock")
    with pytest.raises(TransactionFailed) as caught:
        fence(True)
    assert (type(caught.value.error), caught.value.lock_dir_mismatch) == (kazoo.NotEmptyError, False)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((error(), ZKConnectionError) for error in (kazoo.ConnectionLoss, kazoo.SessionExpiredError, TimeoutError)),
        *((error(), ZKConnectionError) for error in (kazoo.ConnectionClosedError, kazoo.OperationTimeoutError)),
        *((error(), ZKConnectionError) for error in (kazoo.AuthFailedError, RetryFailedError)),
        *((error(), ZKConflict) for error in (kazoo.NoNodeError, kazoo.BadVersionError)),
        (ValueError("x"), ZKException),
    ],
)
def test_kinds_of_errors(error: Exception, kind: type[ZKException]) -> None:
    """A caller can tell "nothing was written" from "nobody knows". A lost session is also Kazoo's error for drivers."""
    found = translate(error)
    assert isinstance(found, kind)
    assert not isinstance(found, tuple({ZKConnectionError, ZKConflict} - {kind}))
    assert isinstance(found, kazoo.SessionExpiredError) is isinstance(error, kazoo.SessionExpiredError)
    assert translate(found) is found


def test_many_reads(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """In order; each stands for itself: a missing znode is None, the others are there, empty or not."""
    for name, value in (("a", b"1"), ("b", b""), ("d", b"\x00\xff"), ("a/x", b""), ("a/y", b"")):
        znodes.kazoo.create(f"/{name}", value)
    znodes.kazoo.set("/d", b"two")
    found = list(transactions.read_data(client, ["/d", "/c", "/a", "/b"]))
    assert [one and one[0] for one in found] == [b"two", None, b"1", b""]
    assert found[0] is not None
    assert (found[0][1].version, found[0][1].dataLength) == (1, 3)
    assert list(transactions.read_data(client, [])) == []
    names = list(transactions.read_children(client, ["/a", "/c", "/a/x"]))
    assert [one and sorted(one) for one in names] == [["x", "y"], None, []]
    count = 6 * transactions.BATCH + 1
    assert [one and one[0] for one in transactions.read_data(client, ["/a"] * count)] == [b"1"] * count
