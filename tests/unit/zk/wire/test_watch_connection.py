# SPDX-License-Identifier: Apache-2.0
"""`WatchConnection`: packets that were read together are handled together."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from kazoo.exceptions import BadArgumentsError
from kazoo.protocol.connection import CLOSE_RESPONSE, WATCH_XID
from kazoo.protocol.serialization import Close, Sync
from kazoo.protocol.states import KeeperState

from nodepool.clock import monotonic
from nodepool.zk.reply import CHANGED, Reply
from nodepool.zk.wire import watched_client
from nodepool.zk.wire.threading_handler import BufferedSocket, WakeReader, WakeWriter
from nodepool.zk.wire.watched_client import MultiRead, WatchedClient, make
from tests.unit.zk.wire.conftest import Pair

TIMEOUT_SECONDS = 1.0
Wake = tuple[WakeReader, WakeWriter]


def packet(body: bytes) -> bytes:
    return struct.pack("!i", len(body)) + body


def event(path: str) -> bytes:
    text = path.encode()
    return packet(struct.pack("!iqiiii", WATCH_XID, -1, 0, CHANGED, 3, len(text)) + text)


def answer(xid: int) -> bytes:
    return packet(struct.pack("!iqii", xid, 7, 0, 1) + b"/")


def reads(xid: int) -> bytes:
    """The answer to a `MultiRead` of nothing."""
    return packet(struct.pack("!iqi", xid, 7, 0) + struct.pack("!i?i", -1, True, -1))


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


def gathers(connection: BufferedSocket) -> bool:
    return connection.gathers_until > monotonic()


def test_events_gather(plain_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones are handled at once, and those that come soon after them together."""
    monkeypatch.setattr(watched_client, "GATHER_SECONDS", 3600.0)
    client, seen = reading(*plain_pair, event("/nodes/1") + event("/nodes/2"))
    client._connection._read_socket(TIMEOUT_SECONDS)
    assert seen == ["/nodes/1", "/nodes/2"]
    assert gathers(plain_pair[0])


def test_half_an_event_does_not_gather(plain_pair: Pair) -> None:
    """The rest of it is waited for."""
    client, seen = reading(*plain_pair, event("/nodes/1") + event("/nodes/2")[:20])
    client._connection._read_socket(TIMEOUT_SECONDS)
    assert seen == ["/nodes/1"]
    assert not gathers(plain_pair[0])


@pytest.mark.parametrize(
    ("request_", "packets", "gather"),
    [
        (Sync("/"), answer(1) + event("/nodes/1"), False),
        (MultiRead([]), reads(1) + event("/nodes/1"), True),
        (MultiRead([]), event("/nodes/1"), False),
    ],
    ids=["answer", "answer to a cache", "still to come"],
)
def test_answers_do_not_gather(
    plain_pair: Pair, monkeypatch: pytest.MonkeyPatch, request_: object, packets: bytes, gather: bool
) -> None:
    """Who got an answer may ask the next question soon. A cache does not, once it has read what it wanted to know."""
    monkeypatch.setattr(watched_client, "GATHER_SECONDS", 3600.0)
    client, seen = reading(*plain_pair, packets)
    client._pending.append((request_, Reply(), 1))
    client._connection._read_socket(TIMEOUT_SECONDS)
    assert seen == ["/nodes/1"]
    assert gathers(plain_pair[0]) is gather


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


# -- calls that are sent by the thread that makes them


@pytest.fixture
def asleep(plain_pair: Pair, wake: Wake) -> Iterator[WatchedClient]:
    """A client that is connected, and whose connection thread sleeps."""
    client, _ = reading(*plain_pair, b"")
    client._live.set()
    client._state = KeeperState.CONNECTED
    client._connection._xid = 0
    connection = client._connection
    connection._read_sock, connection._write_sock = wake
    wake[0].rest()
    yield client
    connection._read_sock = connection._write_sock = None


def write(client: WatchedClient, path: str = "/", data: bytes = b"") -> Reply:
    return client.call(client.operations.set(path, data, -1), Reply())


def sent(other: socket.socket) -> list[int]:
    """Xids of the packets that have come."""
    other.setblocking(False)
    try:
        data = other.recv(1 << 16)
    except BlockingIOError:
        return []
    xids = []
    while data:
        length, xid = struct.unpack_from("!ii", data)
        xids.append(xid)
        data = data[4 + length :]
    return xids


def test_sent_while_the_connection_thread_sleeps(asleep: WatchedClient, plain_pair: Pair, wake: Wake) -> None:
    """It is not woken; the answer comes to it."""
    asleep._connection._xid = 2**31 - 2
    for xid in (2**31 - 1, 1):
        reply = write(asleep)
        assert sent(plain_pair[1]) == [xid]
        assert [(answered, number) for _, answered, number in asleep._pending] == [(reply, xid)]
        assert (len(asleep._queue), wake[0].asleep) == (0, True)
        asleep._pending.clear()
    assert [passed_on for _, passed_on in asleep._connection._sent] == [True, True]
    assert wake[0].borrow(), "it was given back"


def test_sent_while_events_gather(asleep: WatchedClient, plain_pair: Pair, wake: Wake) -> None:
    """The answer does not wait for them."""
    plain_pair[0].gathers_until = monotonic() + 3600.0
    write(asleep)
    assert sent(plain_pair[1]) == [1]
    assert not gathers(plain_pair[0])
    assert not wake[0].asleep, "it waits for the answer, too, from now on"


def test_calls_of_a_burst(asleep: WatchedClient, plain_pair: Pair, wake: Wake) -> None:
    """Those behind the first go out together."""
    for _ in range(3):
        write(asleep)
    assert (len(asleep._pending), sent(plain_pair[1])) == (1, [1])
    assert (len(asleep._queue), wake[0].asleep) == (2, False)


def test_left_to_the_connection_thread(asleep: WatchedClient, plain_pair: Pair, wake: Wake) -> None:
    """What comes behind something that was left to it."""
    asleep._queue.append((Sync("/"), Reply()))
    write(asleep)
    assert (len(asleep._queue), len(asleep._pending), sent(plain_pair[1])) == (2, 0, [])
    assert not wake[0].asleep


def test_login(asleep: WatchedClient, plain_pair: Pair) -> None:
    """It has an xid of its own, which Kazoo gives it."""
    asleep.add_auth_async("digest", "user:password")
    assert (len(asleep._queue), sent(plain_pair[1])) == (1, [])


def test_connection_thread_at_work(asleep: WatchedClient, plain_pair: Pair, wake: Wake) -> None:
    wake[0].resume()
    write(asleep)
    assert (len(asleep._queue), sent(plain_pair[1])) == (1, [])


def test_not_connected(asleep: WatchedClient, plain_pair: Pair) -> None:
    asleep._live.clear()
    write(asleep)
    assert (len(asleep._queue), sent(plain_pair[1])) == (1, [])


def test_no_room_for_all_of_it(asleep: WatchedClient, plain_pair: Pair, wake: Wake) -> None:
    """The connection thread sends the rest, before anything else."""
    write(asleep, data=bytes(1_000_000))
    assert plain_pair[0].unsent
    assert len(asleep._pending) == 1
    assert not wake[0].asleep
    write(asleep)
    assert (len(asleep._queue), len(asleep._pending)) == (1, 1)


def test_connection_that_broke(asleep: WatchedClient, plain_pair: Pair, wake: Wake) -> None:
    """The connection thread is woken: it meets the same error, and reports the call as lost."""
    plain_pair[1].close()
    write(asleep)
    assert len(asleep._pending) == 1
    assert not wake[0].asleep
    with pytest.raises(OSError, match="Broken pipe"):
        plain_pair[0].recv(4)


def test_path_that_cannot_be_sent(asleep: WatchedClient, plain_pair: Pair) -> None:
    reply = write(asleep, "/\ud800")
    with pytest.raises(BadArgumentsError):
        reply.get(0)
    assert (sent(plain_pair[1]), len(asleep._pending), len(asleep._connection._sent)) == ([], 0, 0)
    write(asleep)
    assert sent(plain_pair[1]) == [1]
