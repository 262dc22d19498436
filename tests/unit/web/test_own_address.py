# SPDX-License-Identifier: Apache-2.0
"""Addresses that are right below any prefix of a proxy, and for any name."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest
from starlette.requests import Request

from nodepool.web.answers import own_address, place_of


def asked(path: str, query: bytes = b"") -> Request:
    raw = path.encode()
    return Request({"type": "http", "path": path, "raw_path": raw, "query_string": query, "headers": []})


@pytest.mark.parametrize("prefix", ["", "/tools/nodepool"])
@pytest.mark.parametrize("path", ["/login", "/api/v1/nodes/1/hold"])
@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("", "/"),
        ("nodes?state=hold", "/nodes?state=hold"),
        ("//evil.example", "/evil.example"),
        ("javascript:alert(1)", "/javascript:alert(1)"),
        ("a\r\nb", "/a%0D%0Ab"),
    ],
)
def test_below_a_prefix(prefix: str, path: str, wanted: str, place: str) -> None:
    """WP-86: the proxy has taken the prefix away, which the browser knows."""
    found = urljoin(f"https://proxy.example{prefix}{path}", own_address(asked(path), wanted))
    assert found == f"https://proxy.example{prefix}{place}"


def test_place_with_odd_names() -> None:
    """It leads back to the same page."""
    request = asked("/labels/a%3Fb%2Fc%25", b"x=%26")
    assert place_of(request) == "labels/a%3Fb%2Fc%25?x=%26"
    assert own_address(request, place_of(request)) == "../labels/a%3Fb%2Fc%25?x=%26"
