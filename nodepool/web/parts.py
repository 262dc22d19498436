# SPDX-License-Identifier: Apache-2.0
"""`web_part`: the web server as a part of a daemon that has the caches."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Protocol

from nodepool.model.component import BuilderComponent
from nodepool.runtime.worker import Part
from nodepool.version import how_to_install, release_string
from nodepool.web.internals import connection_metrics
from nodepool.web.lock_names import LockNames
from nodepool.web.server import ListenAddress, WebServer
from nodepool.web.site import Daemon, Site
from nodepool.web.snapshot import SnapshotMaker, nothing
from nodepool.zk import paths
from nodepool.zk.cache import RecordCache
from nodepool.zk.caches import StatusCache

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from nodepool.config.objects import Config
    from nodepool.web.access import Access
    from nodepool.web.browser_login import BrowserLogin
    from nodepool.web.tokens import Tokens
    from nodepool.zk.caches import NodepoolCache
    from nodepool.zk.client import ZooKeeperClient
    from nodepool.zk.zookeeper import ZooKeeper


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
    from nodepool.web.access import Access
    from nodepool.web.actions import Actions
    from nodepool.web.pending_changes import PendingChange, PendingChanges
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
            from nodepool.web.allowed_hosts import AllowedHosts

            app = AllowedHosts(app, config.webapp_allowed_hosts)
        return app

    return Part("WebServer", lambda: WebServer(address, make_app))


def _builder_url(config: Config) -> str | None:
    if not config.webapp_builder_port:
        return None
    return f"{'https' if config.webapp_tls_cert else 'http'}://{{}}:{config.webapp_builder_port}"
