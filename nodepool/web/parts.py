# SPDX-License-Identifier: Apache-2.0
"""The web server: as a part of a daemon that has the caches, or in a process of its own."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from nodepool.clock import wall_time
from nodepool.model.component import BuilderComponent
from nodepool.runtime.daemon import ConnectedDaemon
from nodepool.runtime.worker import Part, Parts, stop_all
from nodepool.version import how_to_install, release_string
from nodepool.web.server import ListenAddress, WebServer
from nodepool.web.site import Daemon, Site, connection_metrics, latency_metrics
from nodepool.web.snapshot import LockNames, SnapshotMaker, nothing
from nodepool.zk import paths
from nodepool.zk.cache import RecordCache
from nodepool.zk.caches import NodepoolCache, StatusCache
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from nodepool.builder.supervisor import ImageBuilder
    from nodepool.config.objects import Config
    from nodepool.web.browser_login import BrowserLogin
    from nodepool.web.changes import Access
    from nodepool.web.tokens import Tokens
    from nodepool.zk.client import ZooKeeperClient

log = logging.getLogger("nodepool.web.parts")


class CachingDaemon(Daemon, Protocol):
    """A launcher, or ``nodepool-web``."""

    client: ZooKeeperClient
    cache: NodepoolCache
    zk: ZooKeeper

    def note(self, actor: str, subject: str, text: str) -> None:
        """An operator changed something. Does not block."""


def _access(daemon: CachingDaemon, config: Config) -> Access | None:
    if not config.webapp_authenticators:
        return None
    # Libraries for tokens, which most sites do not need.
    from nodepool.web.changes import Access, Actions, PendingChange, PendingChanges
    from nodepool.web.tokens import Tokens
    from nodepool.zk.maintenance_store import MaintenanceStore

    def tell(change: PendingChange, became: str) -> None:
        wish, subject = change.wish, f"node {change.node_id}"
        log.info("%s: %s when free, for %s: %s", subject, change.what, wish.operator, became)
        daemon.note(wish.operator, subject, f"{change.what} when free, for {wish.operator}: {became}: {wish.reason}")

    tokens = Tokens(config.webapp_authenticators, config.webapp_operators)
    pending = PendingChanges(daemon.zk, daemon.cache.nodes, tell)
    return Access(
        tokens,
        Actions(daemon.zk, MaintenanceStore(daemon.client), daemon.note, pending),
        config.webapp_require_login,
        config.webapp_origins,
        pending,
        _browser_logins(config, tokens),
    )


def _browser_logins(config: Config, tokens: Tokens) -> dict[str, BrowserLogin]:
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


def web_part(daemon: CachingDaemon, config: Config) -> Part[WebServer]:
    """The web server of a daemon that is being built: its connection does not exist yet. Does not block.

    :param config: of the start; a later one does not move the server.
    """
    status = StatusCache(daemon.client)
    status.start()
    registered = RecordCache(daemon.client, f"{paths.COMPONENTS}/{BuilderComponent.kind}", BuilderComponent.from_dict)

    def builders() -> frozenset[str] | None:
        known = registered.values() if registered.ready.is_set() else None
        return None if known is None else frozenset(builder.hostname for builder in known)

    access = _access(daemon, config)
    pending = nothing if access is None or access.pending is None else access.pending.of_node
    site = Site(
        daemon,
        SnapshotMaker(daemon.cache, status, LockNames(daemon.client).of_node, pending, builders),
        release_string(),
        config.webapp_zuul_url,
        _builder_url(config),
        partial(connection_metrics, daemon.client, daemon.cache),
        access=access,
    )
    address = ListenAddress(
        config.webapp_listen_address,
        config.webapp_port,
        config.webapp_tls_cert,
        config.webapp_tls_key,
        trusted_proxies=tuple(config.webapp_trusted_proxies),
    )

    def make_app() -> ASGIApp:
        # In the thread of the server: these imports take longer than the rest of the start.
        from nodepool.web.app import make_app

        app: ASGIApp = make_app(site)
        if config.webapp_allowed_hosts:
            from nodepool.web.app import AllowedHosts

            app = AllowedHosts(app, config.webapp_allowed_hosts)
        return app

    return Part("WebServer", lambda: WebServer(address, make_app))


def _builder_url(config: Config) -> str | None:
    if not config.webapp_builder_port:
        return None
    return f"{'https' if config.webapp_tls_cert else 'http'}://{{}}:{config.webapp_builder_port}"


# `WebDaemon`: the web pages in a process of their own, for sites whose launchers have enough to do.

#: Longest time that a stop may take.
STOP_SECONDS: Final = 10.0


class WebDaemon(ConnectedDaemon):
    """Caches and a web server; no providers. See the base class for who owns what, and for its parameters."""

    log = logging.getLogger("nodepool.web")
    kind = "web"
    stop_seconds = STOP_SECONDS

    def describe(self, config: Config) -> str:
        """Where the pages are, is told by the web server."""
        return ""

    def build(self, client: ZooKeeperClient) -> None:
        """Make the parts. Nothing of it runs yet."""
        self.client = client
        self.cache = NodepoolCache(client)
        self.zk = ZooKeeper(client, self.cache)
        self.parts = Parts([web_part(self, self._config())], self.log)

    def note(self, actor: str, subject: str, text: str) -> None:
        """:param actor: stands in the log already, with what was done; launchers tell of what they see."""

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


# `logs_part`: makes the web server of a builder, as one of its parts.


def logs_part(builder: ImageBuilder, config: Config) -> Part[WebServer] | None:
    """The web server of a builder that is being built; None = it has none. Does not block.

    :param config: of the start; a later one does not move the server.
    """
    if not config.webapp_builder_port:
        return None
    if config.webapp_require_login:
        logging.getLogger("nodepool.web").error(
            "No build logs and metrics at webapp.builder-port: builders know no login (webapp.auth.require-login)"
        )
        return None
    address = ListenAddress(
        config.webapp_listen_address,
        config.webapp_builder_port,
        config.webapp_tls_cert,
        config.webapp_tls_key,
        "webapp.builder-port",
        tuple(config.webapp_trusted_proxies),
    )

    def make_app() -> ASGIApp:
        from nodepool.web.logs import LogSite, make_logs_app
        from nodepool.web.metrics import builder_routes

        version = release_string()
        site = LogSite(builder.fqdn, version, str(config.build_log_dir), builder.running_builds.ids, wall_time)
        app: ASGIApp = make_logs_app(site, builder_routes(builder, version, partial(latency_metrics, builder.client)))
        if config.webapp_allowed_hosts:
            from nodepool.web.app import AllowedHosts

            # Links of the pages lead to the builder by its own name.
            app = AllowedHosts(app, (*config.webapp_allowed_hosts, builder.fqdn))
        return app

    return Part("WebServer", lambda: WebServer(address, make_app))
