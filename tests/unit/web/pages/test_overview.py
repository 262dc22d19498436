# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace

from nodepool.listing.overview import overview
from nodepool.plan.attention import registered_launchers
from nodepool.plan.observed import Observed
from nodepool.web.pages.overview import MOST_ROWS
from nodepool.web.snapshot import WebSnapshot
from tests.support import observed
from tests.support.web_records import HOSTILE, full
from tests.support.web_site import WebSite


def page(snapshot: WebSnapshot | None = None) -> str:
    answer = WebSite(snapshot).client.get("/")
    assert answer.status_code == 200
    return answer.text


def first_line(text: str) -> str:
    found = re.search(r"<h1>.*?</h1>.*?<p [^>]*>(.*?)</p>", text, re.DOTALL)
    assert found is not None
    return found[1]


def test_first_line_is_the_sentence() -> None:
    """WP-42: the sentence of ``nodepool status``, told to who cannot see when it changes."""
    snapshot = full()
    told = overview(snapshot.observed, snapshot.launchers, registered_launchers(snapshot.observed.registered))
    text = page(snapshot)
    assert first_line(text) == told.sentence
    assert re.search(r'<p id="sentence"[^>]* aria-live="polite">', text)
    assert told.sentence.startswith("2 requests wait longer than 5 min")


def test_needs_attention_and_leads_on() -> None:
    """WP-42"""
    text = page(full())
    assert re.search(r'<a href="./providers/cloud-2">provider cloud-2 is unavailable: HTTP 503', text)
    assert re.search(r'<a href="./hosts">host zuul@node9:22 of lab/main is down', text)
    assert '<a href="./nodes?state=hold">1 node is on hold without an end' in text
    assert '<a href="./labels/broken">label broken of cloud-1/main' in text
    assert '<a href="./nodes/0000000003">1 node of cloud-2 in state deleting' in text
    assert '<a href="./providers/cloud-1">provider cloud-1 is paused by alice' in text
    assert "see: nodepool" not in text


def test_capacity_names_the_limiting_resource() -> None:
    """WP-42"""
    text = page(full())
    assert '<a href="./providers/cloud-1">cloud-1</a> <span>cores 72 + 8 of 80</span>' in text
    assert '<meter class="bad" min="0" max="100" value="100"' in text
    assert "no limit is known" in text


def test_what_waits() -> None:
    """WP-42"""
    assert '<a href="./requests?label=gpu">gpu</a>: 2 requests, the oldest for 6 min' in page(full())


def test_nothing_is_there() -> None:
    """WP-43: a page without data says so."""
    text = page()
    assert "no launcher is registered" in text
    assert "No request waits." in text
    assert "No launcher reports a provider." in text


def test_all_is_well() -> None:
    seen = Observed(observed.NOW, registered=[observed.component("cloud-1", "gpu")])
    assert "All is well." in first_line(page(WebSnapshot(0, seen)))


def test_hostile_texts() -> None:
    """WP-43"""
    text = page(full(HOSTILE))
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not {"\x1b", "\u202e"} & set(text)


def test_many_are_bounded() -> None:
    """WP-43"""
    small = full()
    requests = {one.key: one for one in (observed.request(number, f"label-{number}") for number in range(200))}
    statuses = [observed.status(f"cloud-{number}") for number in range(200)]
    seen = replace(small.observed, requests=requests, statuses=statuses)
    text = page(replace(small, observed=seen))
    assert text.count('<li><a href="./requests?label=') == MOST_ROWS
    assert f"{200 - MOST_ROWS} more" in text


def test_each_launcher_once() -> None:
    pools = [
        observed.component("cloud-1", host="l2"),
        observed.component("cloud-2", host="l1"),
        observed.component("x", host="l2"),
    ]
    assert [launcher.host for launcher in registered_launchers(pools)] == ["l1", "l2"]
