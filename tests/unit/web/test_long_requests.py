# SPDX-License-Identifier: Apache-2.0
"""A request that is long costs nothing (WP-66)."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from nodepool.web.server import MOST_ADDRESS, MOST_HEADERS, LongRequests
from tests.support.web_site import WebSite


@pytest.fixture
def client() -> TestClient:
    return TestClient(LongRequests(WebSite().client.app))


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/nodes", {}, 200),
        ("/nodes?label=" + "x" * 400, {"X": "y" * 20_000}, 200),
        ("/nodes?" + "&".join(f"{number}=1" for number in range(MOST_ADDRESS // 6)), {}, 414),
        ("/nodes/" + "x" * MOST_ADDRESS, {}, 414),
        ("/nodes", {"X": "y" * MOST_HEADERS}, 431),
        ("/nodes", {f"X-{number}": "y" * 1000 for number in range(MOST_HEADERS // 1000)}, 431),
    ],
    ids=["short", "long", "query", "path", "header", "headers"],
)
def test_long_requests(client: TestClient, path: str, headers: dict[str, str], status: int) -> None:
    answer = client.get(path, headers=headers)
    assert answer.status_code == status
    if status != 200:
        assert answer.headers["cache-control"] == "no-store"
