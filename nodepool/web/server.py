# SPDX-License-Identifier: Apache-2.0
"""`WebServer`: the thread that serves the application. What it imports delays nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nodepool.guard import Guard
from nodepool.web.connections import CountedListener, OpenConnections

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

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

    from nodepool.web.bounded import BoundedConnection, LongRequests, Overload

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
