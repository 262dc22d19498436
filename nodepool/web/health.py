# SPDX-License-Identifier: Apache-2.0
"""``/health/live``, ``/health/ready`` and ``/health/status``, as Zuul's components have them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from nodepool.web.site import Site


def routes(site: Site) -> list[BaseRoute]:
    """For load balancers, systemd and orchestrators. None of them blocks or makes a snapshot."""

    async def live(_request: Request) -> Response:
        return _answer(site.alive)

    async def ready(_request: Request) -> Response:
        return _answer(site.ready)

    async def status(_request: Request) -> Response:
        state = "running" if site.daemon.ready.is_set() else "initializing"
        return JSONResponse(
            {
                "kind": site.daemon.kind,
                "version": site.version,
                "state": state,
                "live": site.alive,
                "ready": site.ready,
                "connected": site.daemon.connected,
                "reload_errors": list(site.daemon.reload_errors),
                "loop_age_seconds": round(site.loop_age_seconds, 3),
            }
        )

    return [Route("/health/live", live), Route("/health/ready", ready), Route("/health/status", status)]


def _answer(ok: bool) -> Response:
    return PlainTextResponse("OK", 200) if ok else PlainTextResponse("not ok", 503)
