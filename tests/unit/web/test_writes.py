# SPDX-License-Identifier: Apache-2.0
"""What a change must say (rules WP-92 to WP-95)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.web_tokens import token
from tests.unit.web.test_logins import HOLD, GuardedSite, bearer


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        ({"json": {}}, 400, "reason is required"),
        ({"json": {"reason": " \n "}}, 400, "reason is required"),
        ({"json": {"reason": 5}}, 400, "reason must be a text"),
        ({"json": {"reason": "x" * 1000}}, 400, "at most"),
        ({"json": ["reason"]}, 400, "JSON object"),
        ({"content": b"{"}, 400, "no JSON"),
        ({"content": b"[" * 60_000}, 400, "no JSON"),
        ({"content": b"x" * 100_000}, 413, "At most"),
        ({"content": b"a", "headers": {"Content-Type": "text/plain"}}, 415, "application/json"),
        ({"json": {"reason": "r", "until": "soon"}}, 400, "no duration"),
        ({"json": {"reason": "r", "until": 5}}, 400, "later than now"),
        ({"json": {"reason": "r", "until": True}}, 400, "until"),
        ({"content": b'{"reason": "r", "until": 1e400}'}, 400, "until"),
        ({"data": {f"f{number}": "x" for number in range(200)}}, 400, "fields"),
    ],
)
def test_refused(sent: dict[str, Any], status: int, words: str) -> None:
    """WP-92: with what is allowed; nothing was done."""
    site = GuardedSite()
    headers = {**bearer(token()), **sent.pop("headers", {})}
    answer = site.client.post(HOLD, headers=headers, **sent)
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    assert site.actions.held == []


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nodes/..%2f..%2fx/hold",
        "/api/v1/nodes/abc/hold",
        "/api/v1/maintenance/planet/x",
        "/api/v1/maintenance/provider/%0a",
        "/api/v1/images/none/build",
        "/api/v1/images/none/eat",
    ],
)
def test_unknown(path: str) -> None:
    """WP-93"""
    site = GuardedSite()
    assert site.client.post(path, json={"reason": "r"}, headers=bearer(token())).status_code == 404
    assert site.actions.held == []


def test_form_leads_back() -> None:
    """WP-94: a page sends the same fields as a form, and says where to go then; never to another site."""
    site = GuardedSite()
    for back, location in (("nodes/1?x=y", "nodes/1?x=y"), ("//evil.example", "evil.example")):
        answer = site.client.post(HOLD, data={"reason": "r", "back": back}, headers=bearer(token()))
        assert (answer.status_code, answer.headers["location"]) == (303, f"../../../../{location}")


def test_texts_are_one_line() -> None:
    """WP-92: what is logged and stored."""
    site = GuardedSite()
    assert site.client.post(HOLD, json={"reason": "a\nb\x1b[31m  c"}, headers=bearer(token())).status_code == 200
    assert site.actions.held[0][2] == "a b [31m c"


def test_unknown_methods() -> None:
    site = GuardedSite()
    assert site.client.put(HOLD, json={"reason": "r"}, headers=bearer(token())).status_code in (404, 405)
