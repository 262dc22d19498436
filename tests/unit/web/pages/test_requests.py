# SPDX-License-Identifier: Apache-2.0
"""WP-46: one request."""

from __future__ import annotations

import re

from nodepool.plan.explain import explain_request
from tests.support.web_records import full
from tests.support.web_site import WebSite


def page(name: str) -> str:
    answer = WebSite(full()).client.get(f"/requests/{name}")
    assert answer.status_code == 200
    return answer.text


def test_the_answer_of_explain() -> None:
    """WP-46"""
    seen = full().observed
    told = explain_request(seen.requests["200-0000000001"], seen)
    text = page("200-0000000001")
    assert f'aria-live="polite">Request {told.id} {told.text}</p>' in text
    for verdict in told.pools:
        assert re.search(
            rf">{verdict.pool}</a></td>\s*<td [^>]*>{verdict.verdict}</td>\s*<td>{verdict.text}</td>", text
        )
    for remedy in told.remedies:
        assert f"<li>{remedy}</li>" in text


def test_what_happened() -> None:
    """WP-46"""
    text = page("200-0000000001")
    assert re.search(r"submitted</span>.*declined</span>", text, re.DOTALL)
    assert "5 min later" in text


def test_line_for_the_log() -> None:
    """WP-46"""
    assert "journalctl -u nodepool-launcher --grep &#39;node_request: 200-0000000001&#39;" in page("200-0000000001")


def test_pool_that_is_gone_has_no_link() -> None:
    assert "<td>gone</td>" in page("200-0000000003")


def test_links_to_zuul() -> None:
    """WP-46"""
    site = WebSite(full(), zuul_url="https://zuul.example.org/")
    text = site.client.get("/requests/200-0000000001").text
    assert '<a href="https://zuul.example.org/t/t1/buildset/5d0b">buildset</a>' in text
    assert '<a href="https://zuul.example.org/t/t1/status">status</a>' in text
    assert "zuul.example.org" not in page("200-0000000001")
