# SPDX-License-Identifier: Apache-2.0
"""The thread that serves the application, and its bounds.

First the server (`WebServer`), then what bounds connections: their time, their number, and how many each client has.
Then what becomes of clients when there are too many connections, and of requests that are too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ipaddress
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

import h11
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from nodepool.clock import monotonic
from nodepool.guard import Guard
from nodepool.metrics.catalog import WEB_CLOSED
from nodepool.metrics.statsd import REGISTRY

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger("nodepool.web")

#: Between two tries to listen, e.g. while another process has the port.
RETRY_SECONDS: Final = 30.0
#: At the end, answers that are being sent have so long. Streams of events are told to end before.
GRACE_SECONDS: Final = 2
#: So long after that nothing is waited for any more.
LAST_SECONDS: Final = 1
#: More connections at a time are answered with status 503, but for probes.
MOST_CONNECTIONS: Final = 500
#: A connection is closed on which no other request follows.
IDLE_SECONDS: Final = 15
#: A connection is closed whose client has taken nothing of what was sent for so long.
STALLED_SECONDS: Final = 30
#: In the state of the application's lifespan: functions that end its streams. Called in the event loop.
ON_STOP: Final = "on_stop"


@dataclass(frozen=True)
class ListenAddress:
    """Where to listen.

    :param port: 0 = any that is free. ``port_key``: of the configuration, for the log.
    """

    host: str
    port: int
    #: Files of the certificate and of its key; None = HTTP.
    certificate: str | None = None
    key: str | None = None
    port_key: str = "webapp.port"
    #: Addresses and networks of proxies, whose connections are those of many clients.
    trusted_proxies: tuple[str, ...] = ()


class WebServer(threading.Thread):
    """Serves until `stop`. A port that is taken, or an error of the server, ends neither the thread nor the daemon.

    :param make_app: called in the thread: what it imports delays nobody else.
    """

    def __init__(self, address: ListenAddress, make_app: Callable[[], ASGIApp]) -> None:
        super().__init__(name="WebServer", daemon=True)
        self._address = address
        self._make_app = make_app
        self._stopping = threading.Event()
        self._server: uvicorn.Server | None = None
        self._told = ""
        self._connections = OpenConnections(address.trusted_proxies)
        #: Set while it listens; ``port`` is known then.
        self.listening = threading.Event()
        self.port = address.port

    def stop(self) -> None:
        """Ask it to end. Does not block."""
        self._stopping.set()
        server = self._server
        if server is not None:
            server.should_exit = True

    def run(self) -> None:
        app: ASGIApp | None = None
        while not self._stopping.is_set():
            with Guard(log, "Error in the web server; trying again in %g s", RETRY_SECONDS):
                app = app or self._make_app()
                listener = self._listen()
                if listener is not None:
                    with listener:
                        self._serve(app, listener)
            self.listening.clear()
            self._stopping.wait(RETRY_SECONDS)

    def _listen(self) -> socket.socket | None:
        """The socket, bound before the server starts: that one would end its thread without a word."""
        address = self._address
        try:
            family, *_, place = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
            listener = socket.create_server(place[:2], family=family, backlog=128)
            # Connections inherit both. asyncio sets the second only where a socket names TCP as its protocol, and one
            # of `create_server` does not; without it an answer of several writes waits 40 ms for an acknowledgement.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_SECONDS * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return CountedListener(listener, self._connections)
        except OSError as error:
            keys = f"webapp.listen_address, {address.port_key}"
            text = f"cannot listen on {address.host} port {address.port} ({keys}): {error}"
            if text != self._told:
                self._told = text
                log.error("No web pages: %s. Trying again every %g s", text, RETRY_SECONDS)
            return None

    def _serve(self, app: ASGIApp, listener: socket.socket) -> None:
        self._told = ""
        self.port = listener.getsockname()[1]
        self._server = server = _make_server(app, self._address, self._connections)
        if self._stopping.is_set():
            return
        scheme = "https" if self._address.certificate else "http"
        log.info("Web pages at %s://%s:%d/", scheme, self._address.host, self.port)
        self.listening.set()
        server.run(sockets=[listener])


def _make_server(app: ASGIApp, address: ListenAddress, connections: OpenConnections) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        """The daemon has the signals."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # It waits for streams before it tells the application of the end.
            for end_streams in self.lifespan.state.get(ON_STOP, ()):
                with Guard(log, "Error while streams are ended"):
                    end_streams()
            # A client that takes nothing of what is sent would hold up the end, which is an error for uvicorn.
            cut = asyncio.get_running_loop().call_later(GRACE_SECONDS, self._cut_connections)
            await super().shutdown(sockets)
            cut.cancel()

        def _cut_connections(self) -> None:
            for connection in list(self.server_state.connections):
                transport = getattr(connection, "transport", None)
                if transport is not None:
                    transport.abort()

    settings: dict[str, Any] = {
        "loop": "asyncio",
        "http": partial(BoundedConnection, opened=connections),
        "ws": "none",
        "lifespan": "on",
        # Of the daemon: uvicorn must not configure logging.
        "log_config": None,
        "access_log": False,
        "server_header": False,
        # Who a client of these is, they say.
        "forwarded_allow_ips": ["127.0.0.1", "::1", *address.trusted_proxies],
        "timeout_keep_alive": IDLE_SECONDS,
        "timeout_graceful_shutdown": GRACE_SECONDS + LAST_SECONDS,
        "ssl_certfile": address.certificate,
        "ssl_keyfile": address.key,
    }
    guarded = Overload(LongRequests(app), lambda: len(server.server_state.connections), MOST_CONNECTIONS)
    server = Server(uvicorn.Config(guarded, **settings))
    return server


# `BoundedConnection`: a connection of a client, which cannot stay open for nothing. There are not too many of them.
#
# The daemon needs its file descriptors for ZooKeeper and for clouds.

#: A client has so long to send a request, from its first byte to its last.
REQUEST_SECONDS: Final = 15.0
#: With more open ones another one is closed, see `BoundedConnection._make_room`.
MOST_OPEN: Final = 550


class _Errors(logging.LoggerAdapter[logging.Logger]):
    """uvicorn's own log without what any client can cause as often as it likes, e.g. by requests that are none."""

    #: uvicorn asks for it.
    level = logging.ERROR

    def isEnabledFor(self, level: int) -> bool:
        return level >= logging.ERROR


_ERRORS: Final = cast("logging.Logger", _Errors(logging.getLogger("uvicorn.error"), {}))


class BoundedConnection(H11Protocol):
    """For the event loop. uvicorn closes connections by itself only between two requests.

    :param opened: is notified that the handshake of a connection has ended.
    """

    def __init__(self, *arguments: Any, opened: OpenConnections, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._opened = opened
        self.logger = _ERRORS
        #: Runs while a request is awaited, or a part of it.
        self._deadline: asyncio.TimerHandle | None = None
        #: When something came last, in seconds of the event loop.
        self.active_at = self.loop.time()
        #: It was closed to make room. uvicorn still has it until the event loop turns.
        self.dropped = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._opened.established(transport.get_extra_info("socket").fileno())
        if len(self.connections) > MOST_OPEN:
            self._make_room()
        if not self.dropped:
            self._watch()

    def _make_room(self) -> None:
        """Close one of those that are open. Several may come before the event loop turns: each closes another one.

        It is the one that has waited longest for a request; if none waits, a client goes that does not take its answer;
        if there is none, the new one.
        """
        there = [one for one in self.connections if isinstance(one, BoundedConnection) and not one.dropped]
        if len(there) <= MOST_OPEN:
            return
        ranks = [(rank, one) for one in there if (rank := one._rank()) is not None]
        _, oldest = min(ranks, key=lambda pair: (pair[0], pair[1].active_at), default=(0, self))
        self._opened.closed_by_us.note(ClosedFor.TOO_MANY if oldest is self else ClosedFor.IDLE)
        oldest.dropped = True
        oldest.transport.abort()

    def _rank(self) -> int | None:
        """Those with the lowest rank go first; None = not at all, because it is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            # The client may still take what was sent last.
            return 1 if self.transport.get_write_buffer_size() else 0
        return 2 if self.flow.write_paused else None

    def data_received(self, data: bytes) -> None:
        self.active_at = self.loop.time()
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._cancel()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self._on_deadline)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self) -> None:
        self._deadline = None
        self.transport.close()


# `CountedListener`: a listening socket whose connections are counted from the moment in which they are accepted.
#
# The server counts a connection when its TLS handshake has ended. A client that never ends it would cost a file
# descriptor of the daemon, and no count would show it.

#: A client has so long from the begin of a connection to the end of the TLS handshake.
HANDSHAKE_SECONDS: Final = 10.0


class _CountedSocket(socket.socket):
    """A connection that is counted until it is closed.

    :param connections: has admitted it.
    """

    def __init__(self, accepted: socket.socket, client: str, connections: OpenConnections) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self._connections = connections
        self._deadline: asyncio.TimerHandle | None = None
        self._pending: Pending | None = Pending(client, self._end)

    def begin(self) -> None:
        """The handshake begins; there is an event loop."""
        assert self._pending is not None
        self._connections.begin(self.fileno(), self._pending)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._late)

    def _late(self) -> None:
        if self._pending is not None and self._pending.waits:
            self._connections.closed_by_us.note(ClosedFor.HANDSHAKE)
            self._end()

    def _end(self) -> None:
        """asyncio closes it when it sees that nothing follows."""
        with suppress(OSError):
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        pending, self._pending = self._pending, None
        if self._deadline is not None:
            self._deadline.cancel()
        fileno = self.fileno()
        try:
            super().close()
        finally:
            if pending is not None:
                self._connections.closed(fileno, pending)


class CountedListener(socket.socket):
    """A listening socket for asyncio.

    :param listener: is not to be used any more.
    """

    def __init__(self, listener: socket.socket, connections: OpenConnections) -> None:
        super().__init__(listener.family, listener.type, listener.proto, fileno=listener.detach())
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        """As of any socket. asyncio takes a ConnectionAbortedError for a client that has gone."""
        connection, address = super().accept()
        client = self._connections.admit(address[0])
        if client is None:
            connection.close()
            raise ConnectionAbortedError("there are too many connections")
        counted = _CountedSocket(connection, client, self._connections)
        counted.begin()
        return counted, address


# `OpenConnections`: how many connections each client has, and which of them go when there are too many.

#: Open connections of all clients. Those that wait for the end of a handshake count.
MOST_OPEN_OF_ALL: Final = 600
#: Of one client. A browser has six.
MOST_OF_A_CLIENT: Final = 100
#: A client has a network of its own in IPv6.
_CLIENT_BITS: Final = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Who speaks for many clients: a proxy on this host.
LOOPBACK: Final[tuple[Network, ...]] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


@dataclass(eq=False)
class Pending:
    """A connection.

    :param client: who has it, as `OpenConnections.admit` said.
    :param end: ends it soon.
    """

    client: str
    end: Callable[[], None]
    #: Has its TLS handshake not ended yet?
    waits: bool = True
    #: Does it count? One that has to go does not.
    counts: bool = True


class OpenConnections:
    """Counts by client. For the event loop.

    :param trusted: addresses and networks of proxies, whose connections are those of many clients.
    """

    def __init__(self, trusted: Iterable[str] = (), closed_by_us: ClosedConnections | None = None) -> None:
        self._trusted = (*LOOPBACK, *(ipaddress.ip_network(text, strict=False) for text in trusted))
        self._clients: Counter[str] = Counter()
        #: File descriptor -> a connection whose handshake has not ended, in the order in which they came.
        self._pending: dict[int, Pending] = {}
        self.closed_by_us = closed_by_us or ClosedConnections()
        self.total = 0

    def admit(self, host: str) -> str | None:
        """Count a connection. Returns the name of its client; None = it is one too many.

        One whose TLS handshake has not ended makes room: of the same client, or of the client with most of them.
        """
        client = self._client(host)
        if client and self._clients[client] >= MOST_OF_A_CLIENT and not self._make_room(client):
            self.closed_by_us.note(ClosedFor.CLIENT)
            return None
        if self.total >= MOST_OPEN_OF_ALL and not self._make_room(None):
            self.closed_by_us.note(ClosedFor.TOO_MANY)
            return None
        self.total += 1
        if client:
            self._clients[client] += 1
        return client

    def begin(self, fileno: int, connection: Pending) -> None:
        """A connection that was admitted waits for its handshake."""
        self._pending[fileno] = connection

    def established(self, fileno: int) -> None:
        """The handshake has ended; a connection without TLS has none."""
        connection = self._pending.pop(fileno, None)
        if connection is not None:
            connection.waits = False

    def closed(self, fileno: int, connection: Pending) -> None:
        """A connection has ended."""
        if self._pending.get(fileno) is connection:
            del self._pending[fileno]
        self._forget(connection)

    def _forget(self, connection: Pending) -> None:
        if not connection.counts:
            return
        connection.counts = False
        self.total -= 1
        if connection.client:
            self._clients[connection.client] -= 1
            if self._clients[connection.client] <= 0:
                del self._clients[connection.client]

    def _make_room(self, client: str | None) -> bool:
        """:param client: who has to make it; None = who has most connections that wait."""
        waiting = Counter(one.client for one in self._pending.values())
        if client is None and waiting:
            client = waiting.most_common(1)[0][0]
        found = next(((fileno, one) for fileno, one in self._pending.items() if one.client == client), None)
        if found is None:
            return False
        fileno, connection = found
        del self._pending[fileno]
        connection.waits = False
        self._forget(connection)
        self.closed_by_us.note(ClosedFor.HANDSHAKE)
        connection.end()
        return True

    def _client(self, host: str) -> str:
        """Who has an address; empty = a proxy."""
        address = ipaddress.ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        address = mapped or address
        if any(address in network for network in self._trusted):
            return ""
        bits = _CLIENT_BITS if address.version == 6 else 32
        return str(ipaddress.ip_network((address, bits), strict=False))


# `ClosedConnections`: connections of clients that the web server closed to protect itself: a metric and a log line.

#: An attack must not fill the log.
TELL_SECONDS: Final = 60.0


class ClosedFor(enum.StrEnum):
    """Why a connection was closed. Values stand in metrics and in the log."""

    #: There are too many of all clients, and none could go for it.
    TOO_MANY = "too many"
    #: Its client has too many.
    CLIENT = "too many of one client"
    #: Its TLS handshake did not end, in time or before others needed the room.
    HANDSHAKE = "handshake"
    #: It waited longest for a request, or took its answer slowest, when there were too many.
    IDLE = "room for others"


class ClosedConnections:
    """For the event loop of the server.

    :param clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._told_at = -TELL_SECONDS
        self._untold: Counter[ClosedFor] = Counter()

    def note(self, cause: ClosedFor) -> None:
        """One was closed. It is counted at once, and logged with others that follow soon."""
        REGISTRY.count(WEB_CLOSED.series(cause.value))
        self._untold[cause] += 1
        now = self._clock()
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            told = ", ".join(f"{count} ({one.value})" for one, count in sorted(self._untold.items()))
            self._untold.clear()
            log.warning("Connections of web clients were closed since the last message: %s", told)


# `Overload`: too many connections are open, so most requests are refused, and those of probes are not.

#: A launcher whose pages are busy is not to be ended for it.
PROBES: Final = "/health/"


class Overload:
    """Middleware, the outermost one.

    :param connections: how many are open.
    :param most: of more, requests are answered with status 503.
    """

    def __init__(self, app: ASGIApp, connections: Callable[[], int], most: int) -> None:
        self._app = app
        self._connections = connections
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._connections() >= self._most and not scope["path"].startswith(PROBES):
            text = "Too many connections are open. Try again later.\n"
            answer = PlainTextResponse(text, 503, {"Connection": "close", "Retry-After": "10"})
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)


# `LongRequests`: requests whose address or headers are very long are refused before they are read.

#: Of path and query. The API takes 8,000 bytes of query.
MOST_ADDRESS: Final = 12_000
#: Of all headers. A token has 16 KiB at most. The parser of the server has a bound only for headers that come in parts.
MOST_HEADERS: Final = 40_000


class LongRequests:
    """Middleware."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = _refusal(scope) if scope["type"] == "http" else None
        if status is None:
            await self._app(scope, receive, send)
        else:
            headers = {"Connection": "close", "Cache-Control": "no-store"}
            await PlainTextResponse(f"{status.phrase}\n", status, headers)(scope, receive, send)


def _refusal(scope: Scope) -> HTTPStatus | None:
    """The status of a request that is too long; None = it is not."""
    if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MOST_ADDRESS:
        return HTTPStatus.REQUEST_URI_TOO_LONG
    if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADERS:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    return None
