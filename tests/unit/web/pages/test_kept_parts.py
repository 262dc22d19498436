# SPDX-License-Identifier: Apache-2.0
"""Parts that are kept: who gets them, and what comes with them."""

from __future__ import annotations

import pytest

from nodepool.web.app import SECURITY_HEADERS
from tests.support.web_records import full
from tests.support.web_site import WebSite

PART = {"HX-Request": "true"}


def test_kept_part_has_the_headers_of_one_that_was_made() -> None:
    """WP-40: also those that bound what a page may do."""
    site = WebSite(full())
    made = site.client.get("/nodes?limit=3", headers=PART)
    kept = site.client.get("/nodes?limit=3", headers=PART)
    assert kept.content == made.content
    assert dict(kept.headers) == dict(made.headers)
    assert all(kept.headers[name] == value for name, value in SECURITY_HEADERS.items())


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/nodes", {}, 200),
        ("HEAD", "/nodes", PART, 200),
        ("GET", "/nodes/", PART, 404),
        ("GET", "/nodes?limit=2", PART, 200),
        ("POST", "/nodes", PART, 405),
    ],
)
def test_other_questions_get_no_kept_part(method: str, path: str, headers: dict[str, str], status: int) -> None:
    site = WebSite(full())
    kept = site.client.get("/nodes", headers=PART).text
    answer = site.client.request(method, path, headers=headers)
    assert answer.status_code == status
    assert answer.text != kept
