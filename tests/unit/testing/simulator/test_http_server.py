# SPDX-License-Identifier: Apache-2.0
"""The server of the simulators."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.client import HTTPConnection

from nodepool.testing.simulator.http_server import HttpServer
from nodepool.testing.simulator.messages import Answer, AnswerStream, BodySink, Request
from tests.support.wait import DEADLINE_SECONDS


class Silent:
    """Nobody gets as far as this."""

    def body_sink(self, request: Request) -> BodySink | None:
        return None

    def delay(self, request: Request) -> float:
        return 0.0

    def handle(self, request: Request) -> Answer:
        return Answer()


def test_stop_closes_connections_that_were_just_accepted() -> None:
    """A client must not wait for a server that is gone."""
    for _ in range(10):
        server = HttpServer(Silent())
        server.start()
        clients = [socket.create_connection((server.host, server.port), DEADLINE_SECONDS) for _ in range(8)]
        server.stop()
        for client in clients:
            with client:
                try:
                    assert client.recv(1) == b""
                except ConnectionError:
                    continue


class Letters(AnswerStream):
    """Gives what is put in, until its end is put in."""

    def __init__(self) -> None:
        self._coming = b""
        self._last = False
        self._wake: Callable[[], None] | None = None
        self.opened = threading.Event()
        self.closed = threading.Event()

    def open(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.opened.set()

    def take(self) -> bytes:
        data, self._coming = self._coming, b""
        self.over = self._last
        return data

    def close(self) -> None:
        self._wake = None
        self.closed.set()

    def put(self, data: bytes, last: bool = False) -> None:
        self._coming += data
        self._last = last
        if self._wake is not None:
            self._wake()


class Streaming(Silent):
    """Answers every path but / with the stream."""

    def __init__(self, stream: Letters) -> None:
        self._stream = stream

    def handle(self, request: Request) -> Answer:
        return Answer(200, b"plain") if request.path == "/" else Answer(200, stream=self._stream)


def test_a_stream_comes_as_it_is_made() -> None:
    """The connection can be used again afterwards."""
    stream = Letters()
    server = HttpServer(Streaming(stream))
    server.start()
    client = HTTPConnection(server.host, server.port, timeout=DEADLINE_SECONDS)
    try:
        client.request("GET", "/stream")
        answer = client.getresponse()
        assert stream.opened.wait(DEADLINE_SECONDS)
        stream.put(b"first")
        assert answer.read(5) == b"first"
        stream.put(b"second", last=True)
        assert answer.read() == b"second"
        assert stream.closed.wait(DEADLINE_SECONDS)
        client.request("GET", "/")
        assert client.getresponse().read() == b"plain"
    finally:
        client.close()
        server.stop()


def test_a_stream_is_told_that_its_client_is_gone() -> None:
    stream = Letters()
    server = HttpServer(Streaming(stream))
    server.start()
    try:
        with socket.create_connection((server.host, server.port), DEADLINE_SECONDS) as client:
            client.sendall(b"GET /stream HTTP/1.1\r\n\r\n")
            assert stream.opened.wait(DEADLINE_SECONDS)
        assert stream.closed.wait(DEADLINE_SECONDS)
    finally:
        server.stop()


def test_stop_ends_streams() -> None:
    stream = Letters()
    server = HttpServer(Streaming(stream))
    server.start()
    with socket.create_connection((server.host, server.port), DEADLINE_SECONDS) as client:
        client.sendall(b"GET /stream HTTP/1.1\r\n\r\n")
        assert stream.opened.wait(DEADLINE_SECONDS)
        server.stop()
        assert stream.closed.is_set()
        # Nobody listens any more.
        stream.put(b"late")
