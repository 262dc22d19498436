# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from nodepool.model import states
from nodepool.web.api.routes import ROOT
from tests.support import observed
from tests.support.web_records import NOW, full
from tests.support.web_site import WebSite


def test_page() -> None:
    """WP-46"""
    text = WebSite(full()).client.get("/labels/gpu").text
    assert "<dt>Open requests</dt><dd>" in text
    assert '<a href="../providers/cloud-1">cloud-1/main</a>' in text


def test_waits_of_the_last_hour() -> None:
    """WP-99: page and API tell the same; nothing when nobody waited."""
    site = WebSite(full())
    assert "Waits of the last hour" not in site.client.get("/labels/gpu").text
    for number, labels in ((11, ["gpu"]), (12, ["gpu", "arm"])):
        request = observed.request(number, *labels, state=states.FULFILLED)
        request.created_time, request.state_time = NOW - 100, NOW - 40
        site.snapshots.snapshot.waits.note(request)
    text = site.client.get("/labels/gpu").text
    assert "50 % at most 1 min, 95 % at most 1 min (2 requests; 1 of them wanted other labels, too)" in text
    told = site.client.get(f"{ROOT}/labels/gpu").json()
    assert told["waits"] == {"count": 2, "shared": 1, "p50": 60.0, "p95": 60.0, "covered_seconds": 3600.0}
