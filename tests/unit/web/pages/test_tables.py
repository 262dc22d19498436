# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from dataclasses import replace

import pytest

from nodepool.model.event import Event
from nodepool.model.status import HostStatus
from nodepool.web.pages.providers import MOST_SLOTS
from tests.support import observed
from tests.support.web_records import NOW, full
from tests.support.web_site import WebSite


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("/hosts", ("cannot connect", "quarantined", '<a href="./nodes/0000000004">')),
        ("/launchers", ("9f3c", "failed: line 3", "drained")),
        ("/tenants", ('<a href="./requests?tenant=t1">t1</a>', "<td>20</td>")),
        ("/events", ('<a href="./requests/200-0000000001">request 200-0000000001</a>', "label.unknown")),
    ],
)
def test_what_the_command_tells(address: str, told: tuple[str, ...]) -> None:
    """WP-46"""
    text = WebSite(full()).client.get(address).text
    for one in told:
        assert one in text


def test_newest_event_comes_first() -> None:
    small = full()
    events = [Event(NOW - 10, "l1", "node 1", "held"), Event(NOW - 5, "l1", "node 2", "held")]
    text = WebSite(replace(small, observed=replace(small.observed, events=events))).client.get("/events").text
    assert text.index("node 2") < text.index("node 1")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["node 2", "request 1", "node 1"]),
        ("kind=node", ["node 2", "node 1"]),
        ("since=15s", ["node 2", "request 1"]),
        ("kind=node&since=15s&q=held", ["node 2"]),
        ("kind=odd", []),
    ],
)
def test_filter_of_events(query: str, found: list[str]) -> None:
    """WP-45"""
    small = full()
    events = [
        Event(NOW - 20, "l1", "node 1", "held"),
        Event(NOW - 10, "l1", "request 1", "declined"),
        Event(NOW - 5, "l1", "node 2", "held"),
    ]
    site = WebSite(replace(small, observed=replace(small.observed, events=events)))
    assert re.findall(r"<td>((?:node|request) \d)</td>", site.client.get(f"/events?{query}").text) == found


def test_filter_of_events_that_cannot_be_understood() -> None:
    assert WebSite(full()).client.get("/events?since=soon").status_code == 400


def test_slots_of_hosts() -> None:
    """WP-46"""
    text = WebSite(full()).client.get("/hosts").text
    assert (
        '<strong class="good">zuul@node8:22</strong><br><a href="./nodes/0000000004">0000000004</a>, free</li>' in text
    )
    assert '<strong class="bad">zuul@node9:22</strong><br>free, free</li>' in text
    assert '<strong class="waiting">zuul@node7:22</strong>' in text


def test_slots_are_bounded() -> None:
    small = full()
    host = HostStatus("zuul@big:22", True, slots=10**9)
    status = observed.status("lab", driver="static", hosts=[host])
    text = WebSite(replace(small, observed=replace(small.observed, statuses=[status]))).client.get("/hosts").text
    assert len(re.findall(r"\bfree\b", text)) == MOST_SLOTS
