# SPDX-License-Identifier: Apache-2.0
"""Too many connections: probes are answered all the same (WP-66)."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from nodepool.web.server import Overload


def ok(_request: object) -> PlainTextResponse:
    return PlainTextResponse("ok")


def test_probes() -> None:
    """WP-66."""
    count = 9
    app = Overload(Starlette(routes=[Route("/{path:path}", ok)]), lambda: count, 10)
    with TestClient(app) as client:
        assert client.get("/nodes").status_code == 200
        count = 10
        refused = client.get("/nodes")
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        assert client.get("/health/live").status_code == 200
