# SPDX-License-Identifier: Apache-2.0
"""A link of the chaos runs: silent is not closed, and slow is not out of order."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.tcp_proxy import TcpProxy

#: Only waited for when something is broken.
DEADLINE_SECONDS = 20.0


class Link:
    """Both ends of connections through a proxy."""

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self._listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._listener.settimeout(DEADLINE_SECONDS)
        self.proxy = TcpProxy(self._listener.getsockname()[1], seed="test")
        opened.callback(self.proxy.stop)
        self.proxy.start()

    def connect(self) -> tuple[socket.socket, socket.socket]:
        """Our end and the server's."""
        near = socket.create_connection(("127.0.0.1", self.proxy.port), DEADLINE_SECONDS)
        self._opened.enter_context(near)
        far = self._opened.enter_context(self._listener.accept()[0])
        far.settimeout(DEADLINE_SECONDS)
        return near, far


@pytest.fixture
def link() -> Iterator[Link]:
    with ExitStack() as opened:
        yield Link(opened)


def read(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (part := end.recv(count - len(data))):
        data += part
    return data


def assert_silent(end: socket.socket) -> None:
    """Nothing comes, not even the end."""
    end.settimeout(0.2)
    with pytest.raises(TimeoutError):
        end.recv(1)
    end.settimeout(DEADLINE_SECONDS)


def test_forwards_both_ways(link: Link) -> None:
    near, far = link.connect()
    near.sendall(b"question")
    assert read(far, 8) == b"question"
    far.sendall(b"answer")
    assert read(near, 6) == b"answer"


def test_the_end_is_forwarded_after_the_data(link: Link) -> None:
    near, far = link.connect()
    near.sendall(b"last")
    near.close()
    assert read(far, 5) == b"last"


def test_silence_holds_back_data_and_the_end(link: Link) -> None:
    near, far = link.connect()
    other_near, other_far = link.connect()
    link.proxy.silence()
    near.sendall(b"late")
    other_near.close()
    assert_silent(far)
    assert_silent(other_far)
    link.proxy.resume()
    assert read(far, 4) == b"late"
    assert read(other_far, 1) == b""
    far.sendall(b"answer")
    assert read(near, 6) == b"answer"


def test_a_silent_link_takes_no_new_connection(link: Link) -> None:
    link.proxy.silence()
    with socket.socket() as waiting:
        waiting.settimeout(0.3)
        with pytest.raises(TimeoutError):
            waiting.connect(("127.0.0.1", link.proxy.port))
    link.proxy.resume()
    near, far = link.connect()
    near.sendall(b"x")
    assert read(far, 1) == b"x"


def test_a_slow_link_keeps_the_order(link: Link) -> None:
    link.proxy.delay_seconds = (0.0, 0.02)
    near, far = link.connect()
    text = bytes(range(256)) * 40
    for position in range(0, len(text), 256):
        near.sendall(text[position : position + 256])
    assert read(far, len(text)) == text


def test_cut_closes_both_ends_also_of_a_silent_link(link: Link) -> None:
    near, far = link.connect()
    link.proxy.silence()
    link.proxy.cut()
    assert near.recv(1) == b""
    assert far.recv(1) == b""
    link.proxy.resume()


def test_more_data_than_the_link_holds(link: Link) -> None:
    """The sender waits, and nothing is lost."""
    near, far = link.connect()
    link.proxy.silence()
    near.settimeout(0.3)
    sent = sum(iter(lambda: _send(near), 0))
    assert sent > 1 << 20
    link.proxy.resume()
    near.shutdown(socket.SHUT_WR)
    assert len(read(far, sent + 1)) == sent


def test_waits_for_a_target_that_will_listen_in_a_moment() -> None:
    """As a follower of ZooKeeper does when it is refused: the one that was elected listens a moment later."""
    with ExitStack() as opened:
        target = opened.enter_context(socket.socket())
        target.bind(("127.0.0.1", 0))
        proxy = TcpProxy(target.getsockname()[1], patience=DEADLINE_SECONDS)
        opened.callback(proxy.stop)
        proxy.start()
        near = opened.enter_context(socket.create_connection(("127.0.0.1", proxy.port), DEADLINE_SECONDS))
        near.sendall(b"early")
        assert_silent(near)
        target.listen()
        target.settimeout(DEADLINE_SECONDS)
        far = opened.enter_context(target.accept()[0])
        far.settimeout(DEADLINE_SECONDS)
        assert read(far, 5) == b"early"


def test_closes_the_connection_to_a_target_that_does_not_listen() -> None:
    with ExitStack() as opened:
        target = opened.enter_context(socket.socket())
        target.bind(("127.0.0.1", 0))
        proxy = TcpProxy(target.getsockname()[1], patience=0.1)
        opened.callback(proxy.stop)
        proxy.start()
        near = opened.enter_context(socket.create_connection(("127.0.0.1", proxy.port), DEADLINE_SECONDS))
        assert near.recv(1) == b""


def _send(end: socket.socket) -> int:
    """How much of a piece was taken; 0 = none within the timeout."""
    try:
        return end.send(b"x" * 65536)
    except TimeoutError:
        return 0
