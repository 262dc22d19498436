# SPDX-License-Identifier: Apache-2.0
"""Who serves what: a launcher, a builder, and ``nodepool-web``, which has the pages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from nodepool.model.status import BuilderComponent
from nodepool.runtime.daemon import ConnectedDaemon
from nodepool.runtime.worker import Part, Parts, stop_all
from nodepool.version import how_to_install, release_string
from nodepool.web.server import ListenAddress, WebServer
from nodepool.web.snapshot import SnapshotMaker
from nodepool.zk import paths
from nodepool.zk.cache import RecordCache
from nodepool.zk.caches import NodepoolCache, StatusCache
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp

    from nodepool.builder.supervisor import ImageBuilder
    from nodepool.config.objects import Config
    from nodepool.launcher.supervisor import NodePool
    from nodepool.web.browser_login import BrowserLogin
    from nodepool.web.changes import Access
    from nodepool.web.tokens import Tokens
    from nodepool.zk.client import ZooKeeperClient

log = logging.getLogger("nodepool.web.parts")

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
    from nodepool.web import metrics, served

    version = release_string()
    listings = [] if snapshots is None else served.listings(daemon, snapshots)
    complete = (lambda: True) if snapshots is None else (lambda: snapshots.complete)
    return [*served.health(daemon, version, complete), *listings, metrics.route(daemon, version, cache, snapshots)]


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
        from nodepool.web.logins import Logins
        from nodepool.web.tokens import Tokens

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
        self.client = client
        self.cache = NodepoolCache(client)
        self.zk = ZooKeeper(client, self.cache)
        self.parts = Parts([self._web_part(self._config())], self.log)

    def _web_part(self, config: Config) -> Part[WebServer]:
        access = self._access(config)
        snapshots = _make_snapshots(self.client, self.cache)
        scheme = "https" if config.webapp_tls_cert else "http"
        logs = f"{scheme}://{{}}:{config.webapp_builder_port}" if config.webapp_builder_port else None

        def make_app() -> ASGIApp:
            from nodepool.web import app

            routes, zuul = _routes(self, self.cache, snapshots), config.webapp_zuul_url
            version = release_string()
            pages = app.make_app(snapshots, version, routes, zuul_url=zuul, builder_url=logs, access=access)
            return _only_for(pages, config)

        if config.webapp_pages_port is None:
            return _part(make_app, config, config.webapp_port, "webapp.port", MOST_OF_PAGES)
        return _part(make_app, config, config.webapp_pages_port, "webapp.pages-port", MOST_OF_PAGES)

    def _access(self, config: Config) -> Access | None:
        if not config.webapp_authenticators:
            return None
        # Libraries for tokens, which most sites do not need.
        from nodepool.web.changes import Access, Actions
        from nodepool.web.tokens import Tokens
        from nodepool.zk.zookeeper import MaintenanceStore

        tokens = Tokens(config.webapp_authenticators, config.webapp_operators)
        return Access(
            tokens,
            Actions(self.zk, MaintenanceStore(self.client)),
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
    from nodepool.web.browser_login import EXTRA, BrowserLogin, is_installed

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
