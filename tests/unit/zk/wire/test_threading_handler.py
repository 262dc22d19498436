# SPDX-License-Identifier: Apache-2.0
"""What a wait for sockets says."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodepool.zk.wire.threading_handler import TlsHandler, TlsSocket
from tests.support.certificates import make_certificates

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, other = socket.socketpair()
    yield ours, other
    ours.close()
    other.close()


@pytest.fixture
def call() -> Iterator[socket.socket]:
    """By which Kazoo wakes its connection thread."""
    ours, other = socket.socketpair()
    yield ours
    ours.close()
    other.close()


@pytest.fixture
def tls_pair(pair: Pair, tmp_path: Path) -> Iterator[tuple[TlsSocket, ssl.SSLSocket]]:
    files = make_certificates(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.client_cert, files.client_key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.sslsocket_class = TlsSocket
    with ThreadPoolExecutor(1) as other_end:
        other = other_end.submit(server.wrap_socket, pair[1], server_side=True)
        with client.wrap_socket(pair[0]) as ours, other.result() as theirs:
            assert isinstance(ours, TlsSocket)
            yield ours, theirs


def test_nothing_to_read(pair: Pair) -> None:
    assert TlsHandler().select([pair[0]], [], [], 0) == ([], [], [])


def test_ready_to_read_and_to_write(pair: Pair) -> None:
    ours, other = pair
    other.send(b"a")
    assert TlsHandler().select([ours, other], [ours], [], None) == ([ours], [ours], [])


def test_closed_by_the_other_end(pair: Pair) -> None:
    """Whoever reads is told."""
    ours, other = pair
    other.close()
    assert TlsHandler().select([ours], [], [], None) == ([ours], [], [])


def test_rest_of_a_tls_record(tls_pair: tuple[TlsSocket, ssl.SSLSocket], call: socket.socket) -> None:
    """Two packets in one record: the second is there, although the system has told of all that it has."""
    ours, theirs = tls_pair
    theirs.sendall(b"onetwo")
    assert ours.recv(3) == b"one"
    assert TlsHandler().select([ours, call], [], [], None) == ([ours], [], [])
    assert ours.recv(3) == b"two"
    ours.setblocking(False)
    assert TlsHandler().select([ours, call], [], [], 0) == ([], [], [])


def test_rest_of_a_tls_record_and_a_call(tls_pair: tuple[TlsSocket, ssl.SSLSocket], call: socket.socket) -> None:
    """Neither has to wait for the other."""
    ours, theirs = tls_pair
    theirs.sendall(b"onetwo")
    assert ours.recv(3) == b"one"
    call.shutdown(socket.SHUT_RD)
    assert TlsHandler().select([ours, call], [], [], None) == ([ours, call], [], [])


def test_read_in_parts(tls_pair: tuple[TlsSocket, ssl.SSLSocket]) -> None:
    """What comes together is read at once, and given in the parts that are asked for, in order."""
    ours, theirs = tls_pair
    theirs.sendall(b"0123456789")
    assert [ours.recv(4), ours.recv(1)] == [b"0123", b"4"]
    assert ours.pending() == 5
    assert ours.recv(100) == b"56789"
    assert ours.pending() == 0
    theirs.sendall(b"ab")
    assert ours.recv(2) == b"ab"
    assert ours.pending() == 0


def test_large_packets(tls_pair: tuple[TlsSocket, ssl.SSLSocket]) -> None:
    """Larger than a record, and read in parts of odd sizes."""
    ours, theirs = tls_pair
    sent = bytes(range(256)) * 400
    with ThreadPoolExecutor(1) as other_end:
        done = other_end.submit(theirs.sendall, sent)
        read = b""
        while len(read) < len(sent):
            read += ours.recv(7001)
        done.result()
    assert read == sent


def test_end_of_the_connection(tls_pair: tuple[TlsSocket, ssl.SSLSocket]) -> None:
    """The rest comes first."""
    ours, theirs = tls_pair
    theirs.sendall(b"last")
    theirs.close()
    assert [ours.recv(2), ours.recv(2), ours.recv(2)] == [b"la", b"st", b""]


def test_nothing_to_read_now(tls_pair: tuple[TlsSocket, ssl.SSLSocket]) -> None:
    ours, theirs = tls_pair
    ours.setblocking(False)
    with pytest.raises(ssl.SSLWantReadError):
        ours.recv(4)
    theirs.sendall(b"abc")
    assert TlsHandler().select([ours], [], [], None) == ([ours], [], [])
    assert ours.recv(4) == b"abc"


def test_no_room_to_send(tls_pair: tuple[TlsSocket, ssl.SSLSocket]) -> None:
    """Who sends does not wait for room, except after a call that found none."""
    ours, theirs = tls_pair
    ours.setblocking(False)
    data = bytes(10_000)

    def fill() -> None:
        for _ in range(10_000):
            assert TlsHandler().select([], [ours], [], 0) == ([], [ours], [])
            ours.send(data)

    with pytest.raises(ssl.SSLWantWriteError):
        fill()
    assert TlsHandler().select([], [ours], [], 0) == ([], [], [])
    while TlsHandler().select([], [ours], [], 0) == ([], [], []):
        theirs.recv(16_384)
    ours.send(data)
    assert not ours.full
