# SPDX-License-Identifier: Apache-2.0
"""What a wait for sockets says, and when connections send what was given to them."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kazoo.protocol.states import Callback

from nodepool.clock import monotonic
from nodepool.zk.wire.threading_handler import MOST_WAITING_BYTES, BufferedSocket, TlsHandler, WakeReader, WakeWriter

Pair = tuple[BufferedSocket, socket.socket]
Wake = tuple[WakeReader, WakeWriter]


@pytest.fixture
def handler() -> TlsHandler:
    return TlsHandler()


def test_nothing_to_read(handler: TlsHandler, pair: Pair, wake: Wake) -> None:
    assert handler.select([pair[0], wake[0]], [], [], 0) == ([], [], [])


def test_ready_to_read(handler: TlsHandler, pair: Pair, wake: Wake) -> None:
    """What has come is read at once: whoever asks for a part of it need not wait."""
    ours, other = pair
    other.sendall(b"onetwo")
    assert handler.select([ours, wake[0]], [], [], None) == ([ours], [], [])
    assert ours.pending() == 6
    assert ours.recv(3) == b"one"
    assert handler.select([ours, wake[0]], [], [], None) == ([ours], [], [])
    assert ours.recv(3) == b"two"
    assert handler.select([ours, wake[0]], [], [], 0) == ([], [], [])


def test_closed_by_the_other_end(handler: TlsHandler, pair: Pair) -> None:
    """Whoever reads is told."""
    ours, other = pair
    other.close()
    assert handler.select([ours], [], [], None) == ([ours], [], [])
    assert ours.recv(4) == b""


def test_a_call_and_data(handler: TlsHandler, pair: Pair, wake: Wake) -> None:
    """Neither has to wait for the other."""
    ours, other = pair
    other.sendall(b"onetwo")
    assert handler.select([ours], [], [], None) == ([ours], [], [])
    wake[1].send(b"\0")
    assert handler.select([ours, wake[0]], [], [], None) == ([ours, wake[0]], [], [])


def test_a_call_wakes_who_waits(handler: TlsHandler, pair: Pair, wake: Wake) -> None:
    """From another thread, again and again, and each is handed out once."""
    reader, writer = wake
    with ThreadPoolExecutor(1) as other_thread:
        for _ in range(200):
            sent = other_thread.submit(writer.send, b"\0")
            assert handler.select([pair[0], reader], [], [], 30) == ([reader], [], [])
            reader.recv(1)
            sent.result()
    assert handler.select([pair[0], reader], [], [], 0) == ([], [], [])


def test_gathers(handler: TlsHandler, pair: Pair, wake: Wake) -> None:
    """What comes waits until the time is over, but not longer."""
    ours, other = pair
    other.sendall(b"one")
    ours.gathers_until = monotonic() + 3600.0
    assert handler.select([ours, wake[0]], [], [], 0.01) == ([], [], [])
    assert ours.pending() == 0
    ours.gathers_until = monotonic() + 0.01
    assert handler.select([ours, wake[0]], [], [], 30) == ([ours], [], [])
    assert ours.recv(3) == b"one"


def test_a_call_does_not_wait_for_what_gathers(handler: TlsHandler, pair: Pair, wake: Wake) -> None:
    """Nor does what the other end had no room for."""
    ours, other = pair
    other.sendall(b"one")
    ours.gathers_until = monotonic() + 3600.0
    with ThreadPoolExecutor(1) as other_thread:
        other_thread.submit(wake[1].send, b"\0")
        assert handler.select([ours, wake[0]], [], [], 30) == ([wake[0]], [], [])
    wake[0].recv(1)
    ours.send(bytes(1 << 20))
    assert not ours.flush()
    assert handler.select([ours, wake[0]], [], [], 30) == ([ours], [], [])


def test_calls_are_sent_together(handler: TlsHandler, pair: Pair, wake: Wake) -> None:
    """Nothing is sent as long as there are more calls; all of it before anybody waits."""
    ours, other = pair
    reader, writer = wake
    for _ in range(3):
        writer.send(b"\0")
    for number in range(3):
        assert handler.select([ours, reader], [], [], None) == ([reader], [], [])
        assert handler.select([], [ours], [], None) == ([], [ours], [])
        ours.send(b"%d" % number)
        reader.recv(1)
    other.setblocking(False)
    with pytest.raises(OSError, match=r"."):
        other.recv(10)
    assert handler.select([ours, reader], [], [], 0) == ([], [], [])
    assert other.recv(10) == b"012"


def test_sent_before_what_came_is_handled(handler: TlsHandler, pair: Pair, wake: Wake) -> None:
    ours, other = pair
    other.sendall(b"answer")
    handler.select([ours, wake[0]], [], [], None)
    ours.send(b"call")
    assert handler.select([ours, wake[0]], [], [], None) == ([ours], [], [])
    assert other.recv(10) == b"call"


def test_many_calls_do_not_keep_answers_away(handler: TlsHandler, pair: Pair, wake: Wake) -> None:
    """When a lot was sent there is a look at what has come, although there are more calls."""
    ours, other = pair
    other.sendall(b"answer")
    wake[1].send(b"\0")
    assert handler.select([ours, wake[0]], [], [], None) == ([wake[0]], [], [])
    ours.send(bytes(MOST_WAITING_BYTES))
    assert handler.select([ours, wake[0]], [], [], None) == ([ours, wake[0]], [], [])


def test_no_room_to_send(handler: TlsHandler, pair: Pair) -> None:
    """Who sends waits only when the system has had no room for a while; what was taken arrives, in order."""
    ours, other = pair
    sent = 0
    while handler.select([], [ours], [], 0)[1]:
        sent += ours.send(sent.to_bytes(8, "big") * 1000)
    received = b""
    with ThreadPoolExecutor(1) as other_end:
        done = other_end.submit(_receive, other, sent)
        assert handler.select([], [ours], [], 30) == ([], [ours], [])
        # A wait for answers goes on with what is left to be sent.
        while not ours.flush():
            assert handler.select([ours], [], [], 0.01) == ([], [], [])
        received = done.result()
    assert received == b"".join(at.to_bytes(8, "big") * 1000 for at in range(0, sent, 8000))


def _receive(connection: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        parts += connection.recv(65_536)
    return bytes(parts)


def test_watch_function_that_exits(handler: TlsHandler, caplog: pytest.LogCaptureFixture) -> None:
    """Kazoo's thread goes on: without it nobody hears that a lock is free."""
    called = threading.Event()
    handler.start()
    handler.dispatch_callback(Callback("watch", sys.exit, ("of a driver",)))
    handler.dispatch_callback(Callback("watch", called.set, ()))
    assert called.wait(30)
    handler.stop()
    assert "Error in a function that watches ZooKeeper" in caplog.text


def test_broken_while_sending(handler: TlsHandler, pair: Pair) -> None:
    """Kazoo takes the error of a wait for the end of the connection."""
    ours, other = pair
    other.close()
    ours.send(b"call")
    with pytest.raises(OSError, match=r"."):
        handler.select([ours], [], [], 0)


def test_room_that_came_since_the_last_look(handler: TlsHandler, pair: Pair) -> None:
    """The other end has read meanwhile: who sends does not wait for anything."""
    ours, other = pair
    while handler.select([], [ours], [], 0)[1]:
        ours.send(bytes(MOST_WAITING_BYTES))
    other.setblocking(False)
    with contextlib.suppress(OSError):
        while other.recv(1_000_000):
            pass
    with ThreadPoolExecutor(1) as connection_thread:
        waits = connection_thread.submit(handler.select, [], [ours], [], 60)
        assert waits.result(timeout=45) == ([], [ours], [])


def test_another_connection(handler: TlsHandler, pair: Pair, wake: Wake) -> None:
    """What was made for the sockets of one wait is used only for the same ones."""
    ours, _ = pair
    assert handler.select([ours, wake[0]], [], [], 0) == ([], [], [])
    second, other = socket.socketpair()
    with BufferedSocket(second) as connection, other:
        connection.setblocking(False)
        other.sendall(b"more")
        assert handler.select([connection, wake[0]], [], [], None) == ([connection], [], [])
        assert handler.select([ours, wake[0]], [], [], 0) == ([], [], [])
        wake[1].send(b"\0")
        assert handler.select([ours], [], [], 0) == ([], [], [])
        assert handler.select([ours, wake[0]], [], [], None) == ([wake[0]], [], [])
