# SPDX-License-Identifier: Apache-2.0
"""What all pages have in common."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from nodepool.web.pages.frame import NAVIGATION, address
from nodepool.web.snapshot import RecordKind
from tests.support.web_records import full
from tests.support.web_site import WebSite

PART = {"HX-Request": "true"}


def test_live_part() -> None:
    """WP-41: who asks for the part of a page that changes gets that alone, and caches keep both apart."""
    client = WebSite(full()).client
    page, part = client.get("/"), client.get("/", headers=PART)
    assert page.text.startswith("<!DOCTYPE html>")
    assert part.text.startswith('<div id="live"')
    assert part.text.rstrip().endswith("</div>")
    assert part.text.strip() in page.text
    assert {answer.headers["vary"] for answer in (page, part)} == {"HX-Request"}
    assert {answer.headers["cache-control"] for answer in (page, part)} == {"no-cache"}


def test_live_part_is_made_once_for_all_viewers() -> None:
    site = WebSite(full())
    first = site.client.get("/", headers=PART).text
    snapshot = site.snapshots.snapshot
    later = replace(snapshot.observed, now=snapshot.observed.now + 3600)
    site.snapshots.snapshot = replace(snapshot, observed=later)
    assert site.client.get("/", headers=PART).text == first
    site.snapshots.snapshot = replace(snapshot, number=snapshot.number + 1, observed=later)
    assert site.client.get("/", headers=PART).text != first


def test_kept_part_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not asked for the snapshot, which may have to be made."""
    site = WebSite(full())
    first = site.client.get("/nodes", headers=PART).text
    monkeypatch.setattr(site.snapshots, "latest", pytest.fail)
    assert site.client.get("/nodes", headers=PART).text == first


@pytest.mark.parametrize("path", ["requests/200-9", "nodes/9", "providers/none", "labels/none", "images/none"])
def test_page_of_what_is_not_there_yet(path: str) -> None:
    """WP-41: who opens it a moment too early sees it when it comes."""
    answer = WebSite(full()).client.get(f"/{path}")
    assert answer.status_code == 404
    assert re.search(r'data-kinds="[a-z ]+"', answer.text), "it follows a kind of records"


def test_nothing_is_inline() -> None:
    """WP-40: scripts and styles are files of the site, as its Content-Security-Policy demands."""
    text = WebSite(full()).client.get("/").text
    assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=|javascript:", text) == []
    assert re.findall(r"(?:src|href)=\"(?:https?:|//)", text) == []


def test_files_have_addresses_with_a_hash() -> None:
    """WP-40"""
    client = WebSite().client
    names = re.findall(r'(?:src|href)="(\./static/[^"]+)"', client.get("/").text)
    assert len(names) >= 4
    for name in names:
        answer = client.get(name)
        assert answer.status_code == 200, name
        assert "immutable" in answer.headers["cache-control"]


def test_addresses_are_relative() -> None:
    """WP-40: a reverse proxy may put the site below a prefix."""
    text = WebSite(full()).client.get("/").text
    assert re.findall(r'(?:src|href|action|hx-get|data-stream)="/', text) == []


def test_caches_are_not_complete() -> None:
    """WP-41"""
    assert "ZooKeeper is away" not in WebSite(full()).client.get("/").text
    assert "ZooKeeper is away" in WebSite(replace(full(), complete=False)).client.get("/").text


def test_addresses_of_names() -> None:
    assert address("providers", "a/b ?c") == "providers/a%2Fb%20%3Fc"
    assert address("nodes", label="a&b", page=2, state=None) == "nodes?label=a%26b&page=2"
    assert address("labels", "\ud800") == "labels/%3F"


def test_page_asks_anew_when_what_it_shows_changes() -> None:
    """WP-50: by what the stream of events tells, and when it was lost; the script knows each of these changes."""
    client = WebSite(full()).client
    script = client.get("/static/live.js").text
    told = set(re.findall(r'"(\w+)"', re.findall(r"KINDS = \[(.*?)\]", script)[0]))
    assert {kind.value for kind in RecordKind} <= told
    for path, _ in NAVIGATION:
        text = client.get(f"/{path}").text
        kinds = re.findall(r'id="live"[^>]* data-kinds="([^"]*)"', text)[0].split()
        assert kinds
        assert set(kinds) <= told
        assert 'hx-trigger="records-changed from:body' in text
        assert 'data-stream="./api/v1/events/stream"' in text
        assert re.search(r'<p id="stale" role="status"[^>]* hidden>', text)


def test_fields_are_not_in_the_part_that_changes() -> None:
    """WP-50: what somebody types stays."""
    part = WebSite(full()).client.get("/nodes", headers=PART).text
    assert "<table>" in part
    assert "<form" not in part
