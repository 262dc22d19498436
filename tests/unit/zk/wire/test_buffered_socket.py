# SPDX-License-Identifier: Apache-2.0
"""Connections that read all that has come, and send what was given to them together."""

from __future__ import annotations

import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nodepool.zk.wire.threading_handler import MOST_WAITING_BYTES, BufferedSocket, TlsSocket
from tests.support.certificates import make_certificates

Pair = tuple[BufferedSocket, socket.socket]


@pytest.fixture
def blocking(pair: Pair) -> Pair:
    pair[0].setblocking(True)
    return pair


def test_read_in_parts(blocking: Pair) -> None:
    """What comes together is read at once, and given in the parts that are asked for, in order."""
    ours, other = blocking
    other.sendall(b"0123456789")
    assert [ours.recv(4), ours.recv(1)] == [b"0123", b"4"]
    assert ours.pending() == 5
    assert ours.recv(100) == b"56789"
    assert ours.pending() == 0
    other.sendall(b"ab")
    assert ours.recv(2) == b"ab"
    assert ours.pending() == 0


def test_records_that_came_together(tls_pair: Pair) -> None:
    """Packets in TLS records of their own are one read, as soon as they are there."""
    ours, other = tls_pair
    for number in range(5):
        other.sendall(b"%d" % number)
    ours.fill()
    assert ours.recv(100) == b"01234"


def test_packets(pair: Pair) -> None:
    """Whole ones only; what there is of others stays for whoever asks for parts."""
    ours, other = pair
    assert ours.packet() is None
    other.sendall(b"\0\0\0\x03one\0\0\0\0\0\0\0\x05t")
    ours.fill()
    assert [ours.packet(), ours.packet(), ours.packet()] == [b"one", b"", None]
    other.sendall(b"woho\0\0")
    ours.fill()
    assert [ours.packet(), ours.packet()] == [b"twoho", None]
    assert ours.recv(4) == b"\0\0"
    assert not ours.readable()


def test_length_that_cannot_be(pair: Pair) -> None:
    ours, other = pair
    other.sendall(b"\xff\xff\xff\xffrest")
    ours.fill()
    assert ours.packet() is None
    assert ours.pending() == 8


def test_large_packets(blocking: Pair) -> None:
    """Larger than a read, and asked for in parts of odd sizes."""
    ours, other = blocking
    sent = bytes(range(256)) * 1000
    with ThreadPoolExecutor(1) as other_end:
        done = other_end.submit(other.sendall, sent)
        read = b""
        while len(read) < len(sent):
            read += ours.recv(7001)
        done.result()
    assert read == sent


def test_end_of_the_connection(blocking: Pair) -> None:
    """The rest comes first, and the end is told again and again."""
    ours, other = blocking
    other.sendall(b"last")
    other.close()
    assert [ours.recv(2), ours.recv(2), ours.recv(2), ours.recv(2)] == [b"la", b"st", b"", b""]


def test_end_that_tls_tells(tls_pair: Pair) -> None:
    """The other end says that it sends no more: the system does not tell of that."""
    ours, other = tls_pair
    assert isinstance(other, ssl.SSLSocket)
    other.sendall(b"last")
    with ThreadPoolExecutor(1) as other_end:
        goodbye = other_end.submit(other.unwrap)
        ours.setblocking(True)
        assert [ours.recv(4), ours.recv(4)] == [b"last", b""]
        ours.close()
        # It ends, with an error or without one: OpenSSL knows no rule for an end that is not answered.
        goodbye.exception()
    assert ours.readable()


def test_data_that_is_no_tls(tls_pair: Pair) -> None:
    """What came before it is read; then the error is told."""
    ours, other = tls_pair
    other.sendall(b"good")
    with socket.socket(fileno=socket.dup(other.fileno())) as raw:
        raw.sendall(b"bad" * 100)
    ours.fill()
    assert ours.recv(10) == b"good"
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            ours.recv(10)


def test_reset_connection(plain_pair: Pair) -> None:
    ours, other = plain_pair
    # What is not read makes the system reset the connection instead of ending it.
    ours.send(b"never read")
    ours.flush()
    other.close()
    with pytest.raises(ConnectionResetError):
        ours.recv(1)


def test_nothing_to_read_now(pair: Pair) -> None:
    ours, other = pair
    with pytest.raises(ssl.SSLWantReadError) as raised:
        ours.recv(4)
    assert raised.value.errno == ssl.SSL_ERROR_WANT_READ
    other.sendall(b"abc")
    assert ours.recv(4) == b"abc"


def test_nothing_is_sent_before_it_is_time(pair: Pair) -> None:
    ours, other = pair
    assert [ours.send(b"one"), ours.send(memoryview(b"two"))] == [3, 3]
    other.setblocking(False)
    with pytest.raises(OSError, match=r"."):
        other.recv(10)
    assert ours.flush()
    assert not ours.unsent
    assert other.recv(10) == b"onetwo"
    assert ours.flush()


def test_no_more_is_taken(pair: Pair) -> None:
    ours, _ = pair
    ours.send(bytes(MOST_WAITING_BYTES))
    assert not ours.has_room
    with pytest.raises(ssl.SSLWantWriteError) as raised:
        ours.send(b"more")
    assert raised.value.errno == ssl.SSL_ERROR_WANT_WRITE


def test_sendall(pair: Pair) -> None:
    """More than the system has room for: it waits for that, also where the connection does not block."""
    ours, other = pair
    data = bytes(range(256)) * 4000

    def receive() -> bytes:
        parts = bytearray()
        while len(parts) < len(data):
            parts += other.recv(65_536)
        return bytes(parts)

    with ThreadPoolExecutor(1) as other_end:
        received = other_end.submit(receive)
        ours.sendall(data)
        assert received.result() == data


def test_server_without_certificate_of_the_ca(tmp_path: Path) -> None:
    """The handshake fails here, and the server is told."""
    files = make_certificates(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.client_cert, files.client_key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    ours, other = socket.socketpair()
    with ours, other, ThreadPoolExecutor(1) as other_end:
        accepted = other_end.submit(server.wrap_socket, other, server_side=True)
        with pytest.raises(ssl.SSLCertVerificationError):
            TlsSocket(ours, client, None, 30.0)
        with pytest.raises(ssl.SSLError, match="unknown ca"):
            accepted.result().recv(1)


def test_server_that_goes_in_the_handshake() -> None:
    ours, other = socket.socketpair()
    with ours, ThreadPoolExecutor(1) as other_end:
        gone = other_end.submit(_go, other)
        with pytest.raises(ConnectionResetError):
            TlsSocket(ours, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "localhost", 30.0)
        gone.result()


def _go(connection: socket.socket) -> None:
    with connection:
        connection.recv(10_000)


def test_server_that_is_silent_in_the_handshake() -> None:
    ours, other = socket.socketpair()
    with ours, other, pytest.raises(TimeoutError):
        TlsSocket(ours, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "localhost", 0.01)
