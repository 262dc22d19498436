# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from nodepool.model.event import Event
from tests.support.web_records import NOW, full
from tests.support.web_site import WebSite


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("/hosts", ("cannot connect", "quarantined", '<a href="./nodes/0000000004">')),
        ("/launchers", ("9f3c", "refused: line 3", "drained")),
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
