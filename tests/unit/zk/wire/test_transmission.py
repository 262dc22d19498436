# SPDX-License-Identifier: Apache-2.0
"""Packets are handled as they come, in pieces or many at once, and requests go out together."""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Auth, CloseInstance, GetChildren, GetData, int_struct, reply_header_struct

from nodepool.zk.wire.threading_handler import TlsHandler
from nodepool.zk.wire.transmission import Transmission

SECONDS = 10.0


class Peer:
    """The other end: the server's side of the connection."""

    def __init__(self) -> None:
        ours, self.socket = socket.socketpair()
        ours.setblocking(False)
        self.socket.settimeout(SECONDS)
        client = SimpleNamespace(
            handler=TlsHandler(), _queue=deque(), _pending=deque(), last_zxid=0, _stopped=threading.Event()
        )
        self.transmission = Transmission(client, None, logger=logging.getLogger("test"))
        self.transmission._socket = ours
        self.transmission._xid = 0
        self.transmission._read_sock, self._announce = socket.socketpair()
        self.client = client
        self.results: list[Any] = []

    def queue(self, request: Any) -> None:
        self.client._queue.append(
            (request, SimpleNamespace(set=self.results.append, set_exception=self.results.append))
        )
        self._announce.send(b"\0")

    def send_requests(self) -> None:
        self.transmission._send_request(SECONDS, SECONDS)

    def sent(self) -> list[tuple[int, int]]:
        """Xid and type of each request that has arrived in one piece."""
        data, found = self.socket.recv(1 << 20), []
        while data:
            length, xid, kind = (int_struct.unpack_from(data, offset)[0] for offset in (0, 4, 8))
            found.append((xid, kind))
            data = data[4 + length :]
        return found

    def announced(self) -> bool:
        """Does something still ask for a look at the queue?"""
        return bool(TlsHandler().select([self.transmission._read_sock], [], [], 0)[0])

    def close(self) -> None:
        for each in (self.socket, self.transmission._socket, self.transmission._read_sock, self._announce):
            each.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.close()


def answer(xid: int, names: list[str]) -> bytes:
    """The answer to a GetChildren."""
    body = reply_header_struct.pack(xid, 1, 0) + int_struct.pack(len(names))
    for name in names:
        body += int_struct.pack(len(name)) + name.encode()
    return bytes(int_struct.pack(len(body)) + body)


def test_requests_go_out_together(peer: Peer) -> None:
    for name in "abc":
        peer.queue(GetChildren(f"/{name}", None))
    peer.send_requests()
    assert peer.sent() == [(1, GetChildren.type), (2, GetChildren.type), (3, GetChildren.type)]
    assert [request.path for request, _, _ in peer.client._pending] == ["/a", "/b", "/c"]
    assert not peer.client._queue
    assert not peer.announced()


def test_many_requests_in_turns(peer: Peer) -> None:
    """Answers have their turn in between, and no request is forgotten."""
    for number in range(100):
        peer.queue(GetData(f"/{number}", None))
    peer.send_requests()
    assert len(peer.client._pending) == 64
    assert peer.announced()
    peer.send_requests()
    assert [xid for _, _, xid in peer.client._pending] == list(range(1, 101))
    assert not peer.announced()


def test_large_requests_in_turns(peer: Peer) -> None:
    """And each of them whole, also when the network does not take all at once."""
    received = bytearray()

    def receive() -> None:
        while part := peer.socket.recv(1 << 16):
            received.extend(part)

    receiver = threading.Thread(target=receive)
    receiver.start()
    for number in range(3):
        peer.queue(GetData("/" + str(number) * 40_000, None))
    peer.send_requests()
    assert len(peer.client._pending) == 2
    peer.send_requests()
    assert len(peer.client._pending) == 3
    peer.transmission._socket.shutdown(socket.SHUT_WR)
    receiver.join()
    assert len(received) == sum(4 + 8 + len(request.serialize()) for request, _, _ in peer.client._pending)


def test_announced_before_it_is_queued(peer: Peer) -> None:
    """Kazoo queues first and announces then: a look in between takes the request, and the next one finds nothing."""
    peer.client._queue.append((GetChildren("/a", None), None))
    peer.queue(GetChildren("/b", None))
    peer.send_requests()
    assert len(peer.client._pending) == 2
    peer._announce.send(b"\0")
    peer.send_requests()
    assert len(peer.client._pending) == 2
    assert not peer.announced()


def test_numbers_begin_anew(peer: Peer) -> None:
    """The xid is a signed whole number of 32 bits, and never 0 or negative: those mean something else."""
    peer.transmission._xid = 0x7FFFFFFE
    peer.queue(GetChildren("/a", None))
    peer.queue(GetChildren("/b", None))
    peer.send_requests()
    assert [xid for xid, _ in peer.sent()] == [0x7FFFFFFF, 1]


def test_nothing_after_the_end(peer: Peer) -> None:
    """The server answers nothing that comes after the request to close."""
    for request in (GetChildren("/a", None), CloseInstance, GetChildren("/b", None)):
        peer.queue(request)
    peer.send_requests()
    assert [kind for _, kind in peer.sent()] == [GetChildren.type, CloseInstance.type]
    assert len(peer.client._queue) == 1


def test_credentials_as_kazoo_sends_them(peer: Peer) -> None:
    peer.queue(GetChildren("/a", None))
    peer.queue(Auth(0, "digest", "user:password"))
    peer.send_requests()
    peer.send_requests()
    assert peer.sent() == [(1, GetChildren.type), (-4, Auth.type)]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_answers_in_pieces(peer: Peer, size: int) -> None:
    """However the network cuts them. What came together is handled together: no wait tells of it again."""
    for name in "abc":
        peer.queue(GetChildren(f"/{name}", None))
    peer.send_requests()
    data = b"".join(answer(xid, [f"name-{xid}"] * xid) for xid in (1, 2, 3))
    pieces = [data[begin : begin + size] for begin in range(0, len(data), size)]
    sender = threading.Thread(target=lambda: [peer.socket.send(piece) for piece in pieces])
    sender.start()
    while len(peer.results) < 3:
        assert TlsHandler().select([peer.transmission._socket], [], [], SECONDS)[0]
        peer.transmission._read_socket(SECONDS)
    sender.join()
    assert peer.results == [["name-1"], ["name-2"] * 2, ["name-3"] * 3]


def test_beginning_of_a_packet_stays(peer: Peer) -> None:
    for name in "ab":
        peer.queue(GetChildren(f"/{name}", None))
    peer.send_requests()
    second = answer(2, ["two"])
    peer.socket.send(answer(1, ["one"]) + second[:9])
    peer.transmission._read_socket(SECONDS)
    assert peer.results == [["one"]]
    peer.socket.send(second[9:])
    peer.transmission._read_socket(SECONDS)
    assert peer.results == [["one"], ["two"]]


def test_large_answer(peer: Peer) -> None:
    peer.queue(GetChildren("/a", None))
    peer.send_requests()
    names = [f"name-{number:06d}" for number in range(20_000)]
    sender = threading.Thread(target=peer.socket.sendall, args=(answer(1, names),))
    sender.start()
    peer.transmission._read_socket(SECONDS)
    sender.join()
    assert peer.results == [names]


def test_connection_ends(peer: Peer) -> None:
    peer.socket.close()
    with pytest.raises(ConnectionDropped):
        peer.transmission._read_socket(SECONDS)
    peer.queue(GetChildren("/a", None))
    with pytest.raises(ConnectionDropped):
        peer.send_requests()
    # Kazoo tells who waits for it.
    assert len(peer.client._queue) == 1


def test_connection_is_silent(peer: Peer) -> None:
    """In the middle of a packet, and when nothing more can be sent."""
    peer.socket.send(b"\0\0")
    with pytest.raises(KazooTimeoutError, match="read"):
        peer.transmission._read_socket(0.01)
    with pytest.raises(KazooTimeoutError, match="write"):
        peer.transmission._write(bytes(1 << 24), 0.01)
