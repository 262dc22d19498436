# SPDX-License-Identifier: Apache-2.0
"""Links to Zuul."""

from __future__ import annotations

from nodepool.web.answers import zuul_links
from tests.support.web_records import full

URL = "https://zuul.example.org"


def test_buildset_and_status() -> None:
    record = full().observed.requests["200-0000000001"]
    assert zuul_links(record, f"{URL}/") == {"buildset": f"{URL}/t/t1/buildset/5d0b", "status": f"{URL}/t/t1/status"}
    assert zuul_links(record, None) == {}


def test_hostile_texts_stay_within_links_to_zuul() -> None:
    record = full("/../x?y").observed.requests["200-0000000001"]
    assert zuul_links(record, URL) == {
        "buildset": f"{URL}/t/t1%2F..%2Fx%3Fy/buildset/5d0b%2F..%2Fx%3Fy",
        "status": f"{URL}/t/t1%2F..%2Fx%3Fy/status",
    }


def test_odd_records() -> None:
    record = full().observed.requests["200-0000000001"]
    record.requestor_data = ["odd"]
    assert zuul_links(record, URL) == {"status": f"{URL}/t/t1/status"}
    record.tenant_name = None
    assert zuul_links(record, URL) == {}
