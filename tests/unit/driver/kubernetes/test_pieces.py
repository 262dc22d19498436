# SPDX-License-Identifier: Apache-2.0
"""The body of a watch, as it comes: over a socket, with a server that sends what a test says."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import urllib3

from nodepool.driver.kubernetes.client import pieces

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
#: Of what a server sends, where the next part comes only when a test lets it.
Parts = list[bytes]


class Server:
    """Answers one call in parts: the first at once, each other one after `go_on`. Then it closes the connection."""

    def __init__(self, parts: Parts) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(30)
        self._parts = parts
        self._turns = threading.Semaphore(1)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def go_on(self) -> None:
        self._turns.release()

    def close(self) -> None:
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.recv(1 << 16)
            for part in self._parts:
                assert self._turns.acquire(timeout=30)
                connection.sendall(part)


Serve = Callable[..., tuple[Server, Any]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server, and its answer whose head has been read."""
    servers: list[Server] = []
    pool = urllib3.PoolManager(timeout=30, retries=False)

    def make(*parts: bytes) -> tuple[Server, Any]:
        servers.append(Server(list(parts)))
        return servers[-1], pool.request("GET", servers[-1].url, preload_content=False)

    yield make
    for server in servers:
        server.close()
    pool.clear()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_as_they_come(serve: Serve) -> None:
    """Each is there before the next one is sent; what has come together is one piece."""
    server, response = serve(
        CHUNKED + b"\r\n" + chunk(b"with the head\n"),
        chunk(b"alone\n"),
        chunk(b"two, ") + chunk(b"at once"),
        chunk(b""),
    )
    found = pieces(response)
    seen = []
    for piece in found:
        seen.append(piece)
        server.go_on()
    assert seen == [b"with the head\n", b"alone\n", b"two, at once"]
    response.close()


def test_chunk_in_parts(serve: Serve) -> None:
    """A chunk may be of any length, and what the network makes of it as well."""
    large = bytes(range(256)) * 1000
    whole = chunk(large)
    server, response = serve(CHUNKED + b"\r\n", whole[:3], whole[3:70_000], whole[70_000:] + chunk(b""))
    for _ in range(3):
        server.go_on()
    assert b"".join(pieces(response)) == large


def test_body_without_chunks(serve: Serve) -> None:
    """As an old proxy sends it: urllib3 reads that."""
    _, response = serve(b"HTTP/1.1 200 OK\r\n\r\nthe body")
    assert b"".join(pieces(response)) == b"the body"


def test_body_that_is_compressed(serve: Serve) -> None:
    """Nobody asked for that; urllib3 knows what to do with it."""
    packed = gzip.compress(b"hello world\n")
    _, response = serve(CHUNKED + b"Content-Encoding: gzip\r\n\r\n" + chunk(packed) + chunk(b""))
    assert b"".join(pieces(response)) == b"hello world\n"


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (chunk(b"whole") + b"10\r\nhalf", "closed in the middle"),
        (chunk(b"whole"), "closed in the middle"),
        (chunk(b"whole") + b"no length\r\n", "no HTTP"),
    ],
)
def test_end_before_the_end(serve: Serve, sent: bytes, said: str) -> None:
    """What came before it was given out."""
    server, response = serve(CHUNKED + b"\r\n" + chunk(b"first"), sent)
    found = pieces(response)
    assert next(found) == b"first"
    server.go_on()
    with pytest.raises(ConnectionError, match=said):
        list(found)
    response.close()


def test_silence(serve: Serve) -> None:
    """The read time-out holds for each wait."""
    server, response = serve(CHUNKED + b"\r\n" + chunk(b"first"), b"")
    found = pieces(response)
    assert next(found) == b"first"
    response.connection.sock.settimeout(0.01)
    with pytest.raises(TimeoutError):
        next(found)
    server.go_on()
    response.close()


def test_what_follows_the_end(serve: Serve) -> None:
    _, response = serve(CHUNKED + b"\r\n" + chunk(b"all") + chunk(b"") + b"nonsense")
    assert list(pieces(response)) == [b"all"]
    response.close()
