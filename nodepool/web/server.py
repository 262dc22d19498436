# SPDX-License-Identifier: Apache-2.0
"""`WebServer`: the thread that serves an application. What the application imports delays nothing else.

First the thread, then its listening socket, which bounds the connections.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nodepool.guard import Guard

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

log = logging.getLogger("nodepool.web")

#: Between two tries to listen, e.g. while another process has the port.
RETRY_SECONDS: Final = 30.0
#: At the end, answers that are being sent have so long. Streams are ended before.
GRACE_SECONDS: Final = 2
#: So long after that nothing is waited for any more.
LAST_SECONDS: Final = 1
#: A connection is closed on which no other request follows.
IDLE_SECONDS: Final = 15
#: A connection is closed whose client has taken nothing of what was sent for so long.
STALLED_SECONDS: Final = 30
#: Longest address and headers that come in several packets, in bytes. A token has 16 KiB at most.
MOST_HEADERS: Final = 40_000
#: Connections that wait in the kernel, and those that are accepted in one turn of the event loop.
BACKLOG: Final = 32
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
    #: Addresses and networks of proxies.
    trusted_proxies: tuple[str, ...] = ()


class WebServer(threading.Thread):
    """Serves until `stop`. A port that is taken, or an error of the server, ends neither the thread nor the daemon.

    :param make_app: called in the thread: what it imports delays no other thread.
    :param most: open connections, see `BoundedListener`.
    """

    def __init__(self, address: ListenAddress, make_app: Callable[[], ASGIApp], most: int) -> None:
        super().__init__(name="WebServer", daemon=True)
        self._address = address
        self._make_app = make_app
        self._most = most
        self._stopping = threading.Event()
        self._server: uvicorn.Server | None = None
        self._logged = ""
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
            listener = socket.create_server(place[:2], family=family, backlog=BACKLOG)
            # Connections inherit both. asyncio sets the second only where a socket names TCP as its protocol, and one
            # of `create_server` does not; without it an answer of several writes waits 40 ms for an acknowledgement.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALLED_SECONDS * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return BoundedListener(listener, self._most)
        except OSError as error:
            keys = f"webapp.listen_address, {address.port_key}"
            text = f"cannot listen on {address.host} port {address.port} ({keys}): {error}"
            if error.errno == errno.EADDRINUSE and address.port_key != "webapp.builder-port":
                text += "; nodepool-web beside another daemon needs a port of its own, webapp.pages-port"
            if text != self._logged:
                self._logged = text
                log.error("No web server: %s. Trying again every %g s", text, RETRY_SECONDS)
            return None

    def _serve(self, app: ASGIApp, listener: socket.socket) -> None:
        self._logged = ""
        self.port = listener.getsockname()[1]
        self._server = server = _make_server(app, self._address)
        if self._stopping.is_set():
            return
        scheme = "https" if self._address.certificate else "http"
        log.info("Web server at %s://%s:%d/", scheme, self._address.host, self.port)
        self.listening.set()
        server.run(sockets=[listener])


def _make_server(app: ASGIApp, address: ListenAddress) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # It waits for streams before it notifies the application of the end.
            for end_streams in self.lifespan.state.get(ON_STOP, ()):
                with Guard(log, "Error while streams are ended"):
                    end_streams()
            # A client that takes nothing of what is sent would hold up the end.
            cut = asyncio.get_running_loop().call_later(GRACE_SECONDS, self.cut_connections)
            await super().shutdown(sockets)
            cut.cancel()

        def cut_connections(self) -> None:
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    settings: dict[str, Any] = {
        "loop": "asyncio",
        "http": "h11",
        "ws": "none",
        "lifespan": "on",
        # Logging is configured by the daemon. Requests that are none must not fill the log.
        "log_config": None,
        "log_level": "error",
        "access_log": False,
        "server_header": False,
        # The address of the client in a header of theirs is believed.
        "forwarded_allow_ips": ["127.0.0.1", "::1", *address.trusted_proxies],
        "backlog": BACKLOG,
        "h11_max_incomplete_event_size": MOST_HEADERS,
        "timeout_keep_alive": IDLE_SECONDS,
        "timeout_graceful_shutdown": GRACE_SECONDS + LAST_SECONDS,
        "ssl_certfile": address.certificate,
        "ssl_keyfile": address.key,
    }
    return Server(uvicorn.Config(app, **settings))


class BoundedListener(socket.socket):
    """A listening socket for asyncio: with ``most`` connections open, a new one takes the place of the oldest one.

    The daemon needs its file descriptors for ZooKeeper and for clouds. A connection counts from the moment it is
    accepted: also those of clients that send nothing, or that stop in the TLS handshake.

    :param listener: is not to be used any more.
    """

    def __init__(self, listener: socket.socket, most: int) -> None:
        super().__init__(listener.family, listener.type, listener.proto, fileno=listener.detach())
        self._most = most
        #: In the order in which they came.
        self._open: list[socket.socket] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """As of any socket; a connection too many is ended, and asyncio closes it in its next turn."""
        connection, address = super().accept()
        self._open = [*(one for one in self._open if one.fileno() >= 0), connection]
        for oldest in self._open[: -self._most]:
            # It may have ended already.
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        return connection, address
