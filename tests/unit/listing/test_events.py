# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from nodepool.listing.records import event_line, event_table, is_about
from nodepool.listing.table import render
from nodepool.model.event import Event

DOWN = Event(1763809000.5, "l1", "host zuul@a:22", "down", "", "cannot\x1b connect")
FAILED = Event(1763809001.5, "l1 c/main", "request 200-2", "failed", "label.broken", "no flavor", 3)
POOL = Event(0.0, "l1", "pool cloud-a/main")
LAUNCH = Event(0.0, "l1 cloud-a/main", "node 0000000001", "launch failed")


def test_as_json() -> None:
    assert json.loads(render(event_table([DOWN], 1763809100.0), "json")) == [
        {
            "at": 1763809000.5,
            "subject": "host zuul@a:22",
            "what": "down",
            "text": "cannot\x1b connect",
            "code": "",
            "actor": "l1",
            "count": 1,
        }
    ]


def test_as_a_line() -> None:
    _, _, line = event_line(DOWN, 1763809100.0).partition(" l1: ")
    assert line == "host zuul@a:22 down: cannot  connect"
    assert event_line(FAILED, 1763809100.0).endswith(
        " l1 c/main: request 200-2 (and 2 more) failed [label.broken]: no flavor"
    )


@pytest.mark.parametrize("text", ["pool", "cloud-a/main", "cloud-a", "main"])
def test_found(text: str) -> None:
    assert is_about(POOL, text)


@pytest.mark.parametrize("text", ["node", "0000000001", "cloud-a/main", "cloud-a", "main"])
def test_where_it_happened(text: str) -> None:
    """OV-5: launches are found by their provider and their pool, too."""
    assert is_about(LAUNCH, text)


@pytest.mark.parametrize("text", ["cloud", "cloud-a/", "cloud-b/main", "", "l1"])
@pytest.mark.parametrize("event", [POOL, LAUNCH], ids=lambda event: event.subject)
def test_not_found(event: Event, text: str) -> None:
    assert not is_about(event, text)
