# SPDX-License-Identifier: Apache-2.0
"""`logs_part`: the web server of a builder as a part of it."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from nodepool.clock import wall_time
from nodepool.runtime.worker import Part
from nodepool.version import release_string
from nodepool.web.server import ListenAddress, WebServer

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from nodepool.builder.supervisor import ImageBuilder
    from nodepool.config.objects import Config

log = logging.getLogger("nodepool.web")


def logs_part(builder: ImageBuilder, config: Config) -> Part[WebServer] | None:
    """The web server of a builder that is being built; None = it has none. Does not block.

    :param config: of the start; a later one does not move the server.
    """
    if not config.webapp_builder_port:
        return None
    if config.webapp_require_login:
        log.error(
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
        from nodepool.web.internals import latency_metrics
        from nodepool.web.logs import LogSite, make_logs_app
        from nodepool.web.metrics import builder_routes

        version = release_string()
        site = LogSite(builder.fqdn, version, str(config.build_log_dir), builder.running_builds.ids, wall_time)
        app: ASGIApp = make_logs_app(site, builder_routes(builder, version, partial(latency_metrics, builder.client)))
        if config.webapp_allowed_hosts:
            from nodepool.web.allowed_hosts import AllowedHosts

            # Links of the pages lead to the builder by its own name.
            app = AllowedHosts(app, (*config.webapp_allowed_hosts, builder.fqdn))
        return app

    return Part("WebServer", lambda: WebServer(address, make_app))
