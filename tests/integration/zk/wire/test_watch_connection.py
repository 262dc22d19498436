# SPDX-License-Identifier: Apache-2.0
"""How long the session is certain to live, and calls from the connection thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kazoo.exceptions import ConnectionLoss

from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.reply import Reply
from tests.support.pool_znodes import PoolZnodes
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import holds_for, wait_for


def test_certain_session(make_client: Callable[..., ZooKeeperClient], proxy: TcpProxy, chroot: str) -> None:
    """Without answers for two thirds of its timeout nobody can be sure that a session lives."""
    client = make_client(f"127.0.0.1:{proxy.port}{chroot}", timeout=9.0)
    assert client.session_is_certain(0)
    assert not client.session_is_certain(1)
    until = client.kazoo.lease_until
    # Kazoo's own pings are enough.
    holds_for("the session is certain", lambda: client.session_is_certain(0), lambda: time.monotonic() > until + 1)
    proxy.mute = True
    wait_for("it is not certain any more", lambda: not client.session_is_certain(0))
    assert client.session_epoch == 0, "although it is not known to be lost"
    proxy.mute = False
    proxy.cut()
    wait_for("it is certain again", lambda: client.session_is_certain(client.session_epoch))


def test_calls_from_the_connection_thread(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """A callback may make any number of calls, also while other threads fill Kazoo's queue: nothing blocks."""
    znodes.kazoo.create("/here", b"")
    left = threading.Semaphore(0)

    def many(_: object, __: BaseException | None) -> None:
        for _number in range(1000):
            client.kazoo.call(client.kazoo.operations.get("/here"), Reply(lambda *_: left.release()))

    client.kazoo.call(client.kazoo.operations.get("/here"), Reply(many))
    for _ in range(1000):
        client.kazoo.call(client.kazoo.operations.get("/here"), Reply(lambda *_: left.release()))
    assert all(left.acquire(timeout=30) for _ in range(2000))


def test_calls_of_many_threads(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """Whoever sends, the connection thread or the one that waits: each gets the answer to its own call."""
    kazoo = client.kazoo

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
        found = list(threads.map(work, range(8)))
    assert found == [list(range(1, 101))] * 8


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
