# SPDX-License-Identifier: Apache-2.0
"""``webapp.allowed-hosts`` against DNS rebinding (WP-67)."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from nodepool.web.app import AllowedHosts

HOSTS = ["nodepool.example.org", "*.pods.example.org"]


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ("nodepool.example.org", True),
        ("Nodepool.Example.org.:8005", True),
        ("a.pods.example.org", True),
        ("pods.example.org", False),
        ("evilpods.example.org", False),
        ("evil.example.com", False),
        ("nodepool.example.org.evil.example.com", False),
        ("192.0.2.1:8005", True),
        ("[2001:db8::1]:8005", True),
        ("[nodepool.example.org]", True),
        ("[evil.example.com]", False),
        ("localhost:8005", True),
        ("localhost.evil.example.com", False),
        ("192.0.2.1.evil.example.com", False),
        ("", False),
    ],
)
def test_names(given: str, allowed: bool) -> None:
    """WP-67."""
    assert AllowedHosts(Starlette(), HOSTS).allows(given) is allowed


def test_answers() -> None:
    """WP-67: probes are answered whatever name they send."""

    def ok(_request: object) -> PlainTextResponse:
        return PlainTextResponse("ok")

    app = AllowedHosts(Starlette(routes=[Route("/{path:path}", ok)]), HOSTS)
    with TestClient(app, base_url="http://evil.example.com") as client:
        assert client.get("/nodes").status_code == 421
        assert client.get("/health/live").status_code == client.get("/ready").status_code == 200
        assert client.get("/nodes", headers={"Host": "nodepool.example.org"}).status_code == 200
