# SPDX-License-Identifier: Apache-2.0
"""`WatchConnection`: packets that were read together are handled together."""

from __future__ import annotations

import socket
import struct

from kazoo.protocol.connection import CLOSE_RESPONSE, WATCH_XID
from kazoo.protocol.serialization import Close, Sync

from nodepool.zk import events
from nodepool.zk.reply import Reply
from nodepool.zk.wire.buffered_socket import BufferedSocket
from nodepool.zk.wire.watched_client import WatchedClient, make
from tests.unit.zk.wire.conftest import Pair

TIMEOUT_SECONDS = 1.0


def packet(body: bytes) -> bytes:
    return struct.pack("!i", len(body)) + body


def event(path: str) -> bytes:
    text = path.encode()
    return packet(struct.pack("!iqiiii", WATCH_XID, -1, 0, events.CHANGED, 3, len(text)) + text)


def answer(xid: int) -> bytes:
    return packet(struct.pack("!iqii", xid, 7, 0, 1) + b"/")


def reading(connection: BufferedSocket, other: socket.socket, data: bytes) -> tuple[WatchedClient, list[str]]:
    """A client whose connection has read something; and the paths of events as they are handled."""
    client = make("127.0.0.1:1", timeout=10, longest_pause=1, tls=None)
    seen: list[str] = []
    client._recursive["/nodes"] = lambda _, path: seen.append(path)
    client._stopped.clear()
    client._connection._socket = connection
    other.sendall(data)
    connection.fill()
    return client, seen


def test_all_that_was_read(plain_pair: Pair) -> None:
    """What has not come as a whole waits for the rest."""
    client, seen = reading(*plain_pair, event("/nodes/1") + answer(1) + event("/nodes/2") + event("/nodes/3")[:20])
    client._pending.append((Sync("/"), Reply(lambda *_: seen.append("answer")), 1))
    client._connection._read_socket(TIMEOUT_SECONDS)
    assert seen == ["/nodes/1", "answer", "/nodes/2"]
    plain_pair[1].sendall(event("/nodes/3")[20:])
    client._connection._read_socket(TIMEOUT_SECONDS)
    assert seen[3:] == ["/nodes/3"]


def test_what_is_to_be_sent_goes_first(plain_pair: Pair) -> None:
    client, seen = reading(*plain_pair, event("/nodes/1") + event("/nodes/2"))
    client._queue.append((Sync("/"), Reply()))
    client._connection._read_socket(TIMEOUT_SECONDS)
    assert seen == ["/nodes/1"]


def test_the_end_of_the_session(plain_pair: Pair) -> None:
    """Nothing is handled after it."""
    client, seen = reading(*plain_pair, packet(struct.pack("!iqi", 1, 7, 0)) + event("/nodes/1"))
    client._pending.append((Close(), Reply(), 1))
    assert client._connection._read_socket(TIMEOUT_SECONDS) == CLOSE_RESPONSE
    assert seen == []


def test_latency(plain_pair: Pair) -> None:
    """WP-77: of what the leader answers; a read may be answered by any server."""
    client, _ = reading(*plain_pair, answer(1) + answer(2))
    connection = client._connection
    for xid, passed_on in ((1, True), (2, False)):
        client._pending.append((Sync("/"), Reply(), xid))
        connection._sent.append((0.0, passed_on))
    connection._read_socket(TIMEOUT_SECONDS)
    assert sum(client.latency.counts) == 1
    assert client.latency.sum_seconds > 0
