# SPDX-License-Identifier: Apache-2.0
"""Who serves what: a launcher, a builder, and ``nodepool-web``, which has the pages.

First the parts that daemons have, then `WebDaemon`. Then `WebServer`, the thread that serves an application: what that
imports delays nothing else; last its listening socket, which bounds the connections.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nodepool.guard import Guard
from nodepool.model.status import BuilderComponent
from nodepool.runtime.daemon import ConnectedDaemon
from nodepool.runtime.worker import Part, Parts, stop_all
from nodepool.version import how_to_install, release_string
from nodepool.web.snapshot import SnapshotMaker
from nodepool.zk import paths
from nodepool.zk.cache import RecordCache
from nodepool.zk.caches import StatusCache
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    import uvicorn
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp

    from nodepool.builder.supervisor import ImageBuilder
    from nodepool.config.objects import Config
    from nodepool.launcher.supervisor import NodePool
    from nodepool.web.changes import Access
    from nodepool.web.history import History
    from nodepool.web.logins import BrowserLogin, Tokens
    from nodepool.zk.client import ZooKeeperClient


log = logging.getLogger("nodepool.web")

#: Open connections of a launcher or a builder. Its clients are probes, Prometheus and scripts.
MOST_OF_DAEMON: Final = 100
#: Of ``nodepool-web``: a viewer has one for its stream of events, and some more for a moment.
MOST_OF_PAGES: Final = 600


def launcher_part(launcher: NodePool, config: Config) -> Part[WebServer]:
    """The web server of a launcher that is being built: its connection does not exist yet. Does not block.

    :param config: of the start; a later one does not move the server.
    """
    snapshots = _make_snapshots(launcher.client, launcher.cache)

    def make_app() -> ASGIApp:
        return _guarded(_routes(launcher, launcher.cache, snapshots), config)

    return _part(make_app, config, config.webapp_port, "webapp.port")


def builder_part(builder: ImageBuilder, config: Config) -> Part[WebServer] | None:
    """The web server of a builder that is being built; None = it has none. Arguments as for `launcher_part`."""
    if not config.webapp_builder_port:
        return None

    def make_app() -> ASGIApp:
        from nodepool.web.served import build_logs

        logs = build_logs(str(config.build_log_dir), builder.shared.builds.ids)
        # Links of the pages lead to the builder by its own name.
        return _guarded([*_routes(builder, None, None), *logs], config, builder.shared.host)

    return _part(make_app, config, config.webapp_builder_port, "webapp.builder-port")


def _part(
    make_app: Callable[[], ASGIApp], config: Config, port: int, key: str, most: int = MOST_OF_DAEMON
) -> Part[WebServer]:
    """:param make_app: for the thread of the server: what it imports takes longer than the rest of the start."""
    address = ListenAddress(
        config.webapp_listen_address,
        port,
        config.webapp_tls_cert,
        config.webapp_tls_key,
        key,
        tuple(config.webapp_trusted_proxies),
    )
    return Part("WebServer", lambda: WebServer(address, make_app, most))


def _routes(daemon: ConnectedDaemon, cache: NodepoolCache | None, snapshots: SnapshotMaker | None) -> list[BaseRoute]:
    """What all daemons serve. A builder has no snapshots."""
    from nodepool.web import served

    version = release_string()
    listings = [] if snapshots is None else served.listings(daemon, snapshots)
    complete = (lambda: True) if snapshots is None else (lambda: snapshots.complete)
    return [
        *served.health(daemon, version, complete),
        *listings,
        served.metrics_route(daemon, version, cache, snapshots),
    ]


def _make_snapshots(client: ZooKeeperClient, cache: NodepoolCache) -> SnapshotMaker:
    status = StatusCache(client)
    status.start()
    registered = RecordCache(client, f"{paths.COMPONENTS}/{BuilderComponent.kind}", BuilderComponent.from_dict)

    def builders() -> frozenset[str] | None:
        known = registered.values() if registered.ready.is_set() else None
        return None if known is None else frozenset(builder.hostname for builder in known)

    return SnapshotMaker(cache, status, builders)


def _guarded(routes: Sequence[BaseRoute], config: Config, *names: str) -> ASGIApp:
    """The application of a launcher or a builder, with what ``webapp`` demands of its clients.

    :param names: further names of this host.
    """
    from nodepool.web.served import make_app

    app: ASGIApp = make_app(routes)
    if config.webapp_require_login:
        from nodepool.web.logins import Logins, Tokens

        tokens = Tokens(config.webapp_authenticators, config.webapp_operators)
        app = Logins(app, tokens.checked, require_login=True, has_pages=False)
    return _only_for(app, config, *names)


def _only_for(app: ASGIApp, config: Config, *names: str) -> ASGIApp:
    from nodepool.web.served import AllowedHosts

    return AllowedHosts(app, [*config.webapp_allowed_hosts, *names]) if config.webapp_allowed_hosts else app


# ``nodepool-web``: the daemon that serves pages.

#: Longest time that a stop may take.
STOP_SECONDS: Final = 10.0


class WebDaemon(ConnectedDaemon):
    """Caches and a web server; no providers. See the base class for who owns what, and for its parameters."""

    log = logging.getLogger("nodepool.web")
    kind = "web"
    stop_seconds = STOP_SECONDS

    def describe(self, config: Config) -> str:
        """The web server logs where the pages are."""
        return ""

    def build(self, client: ZooKeeperClient) -> None:
        """Make the parts. Nothing of it runs yet."""
        # Launchers and builders keep no history.
        from nodepool.web.history import History, HistoryWorker

        self.client = client
        self.cache = NodepoolCache(client)
        self.zk = ZooKeeper(client, self.cache)
        config, snapshots, history = self.config(), _make_snapshots(self.client, self.cache), History()
        history.follow(self.cache)
        worker = Part("History", lambda: HistoryWorker(history, snapshots, config.webapp_history))
        self.parts = Parts([worker, self._web_part(config, snapshots, history)], self.log)

    def _web_part(self, config: Config, snapshots: SnapshotMaker, history: History) -> Part[WebServer]:
        access = self._access(config, snapshots)
        scheme = "https" if config.webapp_tls_cert else "http"
        logs = f"{scheme}://{{}}:{config.webapp_builder_port}" if config.webapp_builder_port else None

        def make_app() -> ASGIApp:
            from nodepool.web import app

            routes, zuul = _routes(self, self.cache, snapshots), config.webapp_zuul_url
            version = release_string()
            pages = app.make_app(
                snapshots, version, routes, zuul_url=zuul, builder_url=logs, access=access, history=history
            )
            return _only_for(pages, config)

        if config.webapp_pages_port is None:
            return _part(make_app, config, config.webapp_port, "webapp.port", MOST_OF_PAGES)
        return _part(make_app, config, config.webapp_pages_port, "webapp.pages-port", MOST_OF_PAGES)

    def _access(self, config: Config, snapshots: SnapshotMaker) -> Access | None:
        if not config.webapp_authenticators:
            return None
        # Libraries for tokens, which most sites do not need.
        from nodepool.web.changes import Access, Actions
        from nodepool.web.logins import Tokens

        tokens = Tokens(config.webapp_authenticators, config.webapp_operators)
        return Access(
            tokens,
            Actions(
                self.zk,
                snapshots,
                lambda: [name for name, image in self.config().diskimages.items() if not image.abstract],
            ),
            config.webapp_require_login,
            config.webapp_origins,
            browser_logins(config, tokens),
        )

    def begin(self) -> None:
        """Serve at once: a page says that the caches are being filled. Does not block."""
        self.parts.start()

    def run_once(self) -> None:
        """One turn of the main loop."""
        self.configuration.follow()
        self.parts.revive()
        if self.client.connected:
            self.cache.nodes.refresh_stale()

    def apply(self, config: Config) -> None:
        """Nothing that is served depends on it but addresses, which stay until a restart."""

    def end(self) -> None:
        """Stop everything; blocks at most `STOP_SECONDS`."""
        stop_all(self.parts.threads(), STOP_SECONDS, self.log)
        self.client.disconnect()
        self.log.info("Stopped")


def browser_logins(config: Config, tokens: Tokens) -> dict[str, BrowserLogin]:
    """The providers at which browsers can log in."""
    from nodepool.config.webapp import OPENID_CONNECT
    from nodepool.web.logins import EXTRA, BrowserLogin, is_installed

    providers = [one for one in config.webapp_authenticators if one.driver == OPENID_CONNECT]
    if providers and not is_installed():
        names = ", ".join(one.name for one in providers)
        log.info(
            "Browsers cannot log in at %s, only tokens are taken: the extra %s is not installed; %s",
            names,
            EXTRA,
            how_to_install(EXTRA),
        )
        return {}
    return {one.name: BrowserLogin(one, tokens) for one in providers}


# `WebServer`: the thread. What the application imports delays nothing else.

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
