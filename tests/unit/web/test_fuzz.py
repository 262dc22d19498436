# SPDX-License-Identifier: Apache-2.0
"""Whatever a client sends, no answer has a status of 500 or above, and each is what it says that it is."""

from __future__ import annotations

import json
from urllib.parse import quote_from_bytes

from hypothesis import example, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from nodepool.web.api.routes import ROOT, all_resources
from nodepool.web.app import make_app
from tests.support.web_records import full
from tests.support.web_site import WebSite

LISTINGS = ("/image-list", "/dib-image-list", "/image-status", "/node-list", "/request-list", "/label-list", "/ready")
NAMES = ("0000000001", "200-0000000001", "cloud-1", "gpu", "nobody")
PATHS = sorted(
    {
        ROOT + resource.path.replace(":path}", "}").replace("{name}", name)
        for resource in all_resources()
        for name in NAMES
    }
    | set(LISTINGS)
)
PARAMETERS = sorted({one.name for resource in all_resources() for one in resource.parameters} | {"node_id", "fields"})
ODD = st.sampled_from(
    [
        *(
            "",
            ",",
            "*",
            "[",
            "[!",
            "(",
            "-",
            "-id",
            "id",
            "null",
            "nan",
            "inf",
            "1e999",
            "0",
            "-1",
            "9" * 400,
            "1w" * 90,
        ),
        *("id,state", "ready", "%", "%ff", "\0", "a\nb", "\ud800", "../..", "W10", "*" * 99, "{name}", "\u0661\u0662"),
    ]
)
TEXTS = st.one_of(ODD, st.text(max_size=20), st.text("*?[]-,.%\\", max_size=40))


def encoded(text: str) -> str:
    """As in an address: percent-encoded, half of a surrogate pair too."""
    return quote_from_bytes(text.encode("utf-8", "surrogatepass"))


QUERIES = st.one_of(
    st.lists(st.tuples(st.sampled_from(PARAMETERS), TEXTS), max_size=4).map(
        lambda pairs: "&".join(f"{name}={encoded(value)}" for name, value in pairs)
    ),
    st.text("&=;%?+abcdef0123456789", max_size=30),
)
WHERE = st.one_of(
    st.sampled_from(PATHS),
    st.tuples(st.sampled_from(PATHS), TEXTS).map(lambda parts: f"{parts[0]}/{encoded(parts[1])}"),
    TEXTS.map(lambda text: f"/{encoded(text)}"),
    TEXTS.map(lambda text: f"{ROOT}/nodes/{encoded(text)}"),
    TEXTS.map(lambda text: f"{ROOT}/providers/{encoded(text)}"),
    TEXTS.map(lambda text: f"{ROOT}/labels/{encoded(text)}"),
)
HEADERS = st.dictionaries(
    st.sampled_from(["accept", "if-none-match", "if-modified-since", "range", "accept-encoding", "host", "cookie"]),
    st.one_of(st.binary(max_size=30).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b"")), st.just(b"*/*")),
    max_size=3,
)
METHODS = st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "DELETE", "OPTIONS", "TRACE"])
CLIENT = TestClient(make_app(WebSite(full()).site), base_url="http://nodepool.example", raise_server_exceptions=True)


@settings(max_examples=60, deadline=None)
@given(METHODS, WHERE, QUERIES, HEADERS)
@example("GET", f"{ROOT}/nodes", "cursor=W2ZhbHNlLGZhbHNlLDEsIiIsIiJd", {})
@example("GET", "/node-list", "fields=%ff", {"accept": b"\xff"})
def test_requests(method: str, path: str, query: str, headers: dict[str, bytes]) -> None:
    """WP-8, WP-25"""
    if path == f"{ROOT}/events/stream":
        return
    answer = CLIENT.request(
        method,
        f"{path}?{query}",
        headers=[(name.encode(), value) for name, value in headers.items()],
        follow_redirects=False,
    )
    assert answer.status_code < 500
    if answer.content and "json" in answer.headers.get("content-type", "") and answer.text != "OK":
        json.loads(answer.content)
    # The client takes .. out of a path.
    if answer.request.url.path.startswith(ROOT) and answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        if method != "HEAD":
            assert answer.json()["status"] == answer.status_code
