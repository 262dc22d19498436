# SPDX-License-Identifier: Apache-2.0
"""Recursive watches, replies in the order of the events, what cannot be sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import BadArgumentsError, NoNodeError

from nodepool.exceptions import ZKConnectionError
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.reply import CHANGED, CREATED, DELETED, Reply
from tests.support.pool_znodes import PoolZnodes
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_for

Seen = list[tuple[Any, ...]]


def watch(client: ZooKeeperClient, path: str) -> Seen:
    """Watches a subtree; returns the list that its events go to."""
    seen: Seen = []
    assert client.kazoo.watch_recursive(path, lambda event, where: seen.append((event, where))).get(30) is True
    return seen


def test_all_below_and_the_root_itself(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """Paths come without the chroot; the root need not exist yet."""
    seen = watch(client, "/root")
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


def test_two_roots(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    first, second = watch(client, "/a"), watch(client, "/ab")
    znodes.kazoo.create("/ab", b"")
    znodes.kazoo.create("/a", b"")
    wait_for("both are told", lambda: first and second)
    assert (first, second) == ([(CREATED, "/a")], [(CREATED, "/ab")])


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


def test_watch_ends_with_the_connection_and_can_be_added_again(
    shaky: ZooKeeperClient, proxy: TcpProxy, znodes: PoolZnodes
) -> None:
    seen = watch(shaky, "/root")
    proxy.take_down()
    wait_for("the loss is seen", lambda: shaky.suspended)
    znodes.kazoo.create("/root", b"")
    proxy.bring_up()
    assert shaky.wait_connected(30)
    again = watch(shaky, "/root")
    znodes.kazoo.set("/root", b"1")
    wait_for("the event", lambda: again)
    assert (seen, again) == ([], [(CHANGED, "/root")])


def test_ordinary_watches_beside_it(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """A recipe of Kazoo watches the same znode: both are told."""
    seen = watch(client, "/root")
    znodes.kazoo.create("/root/a", b"", makepath=True)
    data, children, gone = threading.Event(), threading.Event(), threading.Event()
    client.kazoo.get("/root/a", watch=lambda event: data.set())
    client.kazoo.get_children("/root", watch=lambda event: children.set())
    znodes.kazoo.set("/root/a", b"1")
    assert data.wait(30)
    client.kazoo.exists("/root/a", watch=lambda event: gone.set())
    znodes.kazoo.delete("/root/a")
    assert children.wait(30)
    assert gone.wait(30)
    wait_for("all events", lambda: len(seen) == 4)
    assert seen[2:] == [(CHANGED, "/root/a"), (DELETED, "/root/a")]


def test_function_that_raises(client: ZooKeeperClient, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture) -> None:
    """The connection lives on."""
    calls: list[str] = []

    def broken(event: int, path: str) -> None:
        calls.append(path)
        raise KeyError(path)

    client.kazoo.watch_recursive("/root", broken).get(30)
    znodes.kazoo.create("/root", b"")
    znodes.kazoo.create("/root/a", b"")
    wait_for("both events", lambda: calls == ["/root", "/root/a"])
    assert client.kazoo.get("/root")[0] == b""
    assert "Error while handling a ZooKeeper event for /root" in caplog.text


def test_event_while_somebody_disconnects(
    client: ZooKeeperClient, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    """What the function would ask next is of no use to anybody: no mistake, no traceback."""
    calls: list[str] = []

    def late(event: int, path: str) -> None:
        calls.append(path)
        raise ZKConnectionError("not connected to ZooKeeper")

    client.kazoo.watch_recursive("/root", late).get(30)
    znodes.kazoo.create("/root", b"")
    wait_for("the event", lambda: calls == ["/root"])
    assert client.kazoo.get("/root")[0] == b""
    assert [record for record in caplog.records if record.exc_info] == []


# -- Reply


def test_reply_with_an_error(client: ZooKeeperClient) -> None:
    reply = client.kazoo.call(client.kazoo.operations.get("/nowhere"), Reply())
    assert reply.wait(30)
    with pytest.raises(NoNodeError):
        reply.get()


def test_handler_that_raises(client: ZooKeeperClient, caplog: pytest.LogCaptureFixture) -> None:
    def broken(result: Any, error: BaseException | None) -> None:
        raise KeyError("handler")

    client.kazoo.create("/a")
    reply = client.kazoo.call(client.kazoo.operations.get("/a"), Reply(broken))
    assert reply.get(30)[0] == b""
    assert "Error while handling a ZooKeeper reply" in caplog.text
    assert client.kazoo.exists("/a") is not None


# -- what it is made with, what it refuses


@pytest.mark.parametrize(("timeout", "pause"), [(4.0, 0.5), (10.0, 1.25), (60.0, 3.0)])
def test_pauses_are_much_shorter_than_the_session(
    make_client: Callable[..., ZooKeeperClient], timeout: float, pause: float
) -> None:
    client = make_client(timeout=timeout)
    assert client.kazoo._conn_retry.max_delay == pause


def test_path_that_cannot_be_sent(client: ZooKeeperClient) -> None:
    """It is an error for its caller, and not the end of the connection thread."""
    with pytest.raises(BadArgumentsError, match="ud800"):
        client.kazoo.exists("/\ud800")
    assert client.kazoo.exists("/nobody") is None
    assert client.session_epoch == 0
