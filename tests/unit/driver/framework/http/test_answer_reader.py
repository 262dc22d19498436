# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.http.connections`: answers of all kinds, and what is none."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from nodepool.driver.framework.http import connections
from nodepool.driver.framework.http.connections import Bounds, BrokenAnswer, ClosedBefore, read_answer
from tests.support.manual_clock import monotonic_clock

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BOUNDS = Bounds(1 << 20, 120.0)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    near.settimeout(60.0)
    with near, far:
        yield near, far


def answered(pair: tuple[socket.socket, socket.socket], data: bytes, *, end: bool = False) -> connections.QuickAnswer:
    near, far = pair
    far.sendall(data)
    if end:
        far.shutdown(socket.SHUT_WR)
    return read_answer(near, BOUNDS)


@pytest.mark.parametrize(
    ("data", "keep"),
    [
        (HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}', True),
        (HEAD + b'Transfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n4\r\n: 1}\r\n0\r\n\r\n', True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}', True),
        (HEAD + b'Connection: close\r\nContent-Length: 8\r\n\r\n{"a": 1}', False),
        (b'HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}', False),
        # More than was asked for: who knows what the next answer would be.
        (HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}HTTP/1.1 200 OK\r\n', False),
        (HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}garbage', False),
    ],
)
def test_answers(pair: tuple[socket.socket, socket.socket], data: bytes, keep: bool) -> None:
    answer = answered(pair, data)
    assert (answer.status_code, answer.json(), answer.keep) == (200, {"a": 1}, keep)


def test_second_answer(pair: tuple[socket.socket, socket.socket]) -> None:
    """Nobody has asked for it: status, head and content are those of the first."""
    second = b"HTTP/1.1 500 No\r\nX-Other: b\r\nContent-Length: 3\r\n\r\nbad"
    answer = answered(pair, HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}' + second)
    assert (answer.status_code, answer.content, answer.keep) == (200, b'{"a": 1}', False)
    assert dict(answer.headers.items()) == {"Content-Type": "application/json", "Content-Length": "8"}


def test_until_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    answer = answered(pair, HEAD + b'\r\n{"a": 1}', end=True)
    assert (answer.json(), answer.keep) == ({"a": 1}, False)


def test_without_content(pair: tuple[socket.socket, socket.socket]) -> None:
    answer = answered(pair, b"HTTP/1.1 204 No Content\r\n\r\n")
    assert (answer.status_code, answer.content, answer.keep) == (204, b"", True)


def test_in_pieces(pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_READ_BYTES", 1)
    assert answered(pair, HEAD + b'Content-Length: 8\r\n\r\n{"a": 1}').json() == {"a": 1}


def test_headers(pair: tuple[socket.socket, socket.socket]) -> None:
    """In any letters; what stands there twice is joined."""
    answer = answered(pair, HEAD + b"Retry-After: 7\r\nVary: a\r\nvary: b\r\nContent-Length: 0\r\n\r\n")
    assert answer.headers["retry-after"] == "7"
    assert answer.headers["VARY"] == "a, b"


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", False),
        (HEAD + b"Content-Length: 9\r\n\r\n{", True),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\n{", True),
        (b"HTTP/1.1 200", True),
        (HEAD + b"Content-Length: -1\r\n\r\n", False),
        (HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n", False),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", False),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", False),
        (HEAD + b"X: " + b"x" * 70_000, True),
    ],
)
def test_no_answer(pair: tuple[socket.socket, socket.socket], data: bytes, end: bool) -> None:
    with pytest.raises(BrokenAnswer):
        answered(pair, data, end=end)


def test_too_long(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    far.sendall(HEAD + b"Content-Length: 100\r\n\r\n" + b"x" * 100)
    with pytest.raises(BrokenAnswer, match="more than 0 MiB"):
        read_answer(near, Bounds(100, 60.0))


@pytest.mark.parametrize("reset", [False, True])
def test_closed_before(pair: tuple[socket.socket, socket.socket], reset: bool) -> None:
    """O-19."""
    near, far = pair
    if reset:
        # What was sent to it and not read resets the connection.
        near.sendall(b"GET / HTTP/1.1\r\n\r\n")
    far.close()
    with pytest.raises(ClosedBefore):
        read_answer(near, BOUNDS)


def test_takes_too_long(pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a byte comes."""
    clock = monotonic_clock(monkeypatch, connections)
    near, far = pair
    far.sendall(HEAD + b"Vary: a\r\n")
    message = connections._Message.on_header

    def slow(self: connections._Message, name: bytes, value: bytes) -> None:
        clock.pass_seconds(121.0)
        message(self, name, value)

    monkeypatch.setattr(connections._Message, "on_header", slow)
    with pytest.raises(TimeoutError, match="takes too long"):
        read_answer(near, BOUNDS)


def test_nothing_comes(pair: tuple[socket.socket, socket.socket]) -> None:
    near, _ = pair
    with pytest.raises(TimeoutError):
        read_answer(near, Bounds(1 << 20, 0.05))
