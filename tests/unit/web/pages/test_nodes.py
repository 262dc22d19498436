# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import re

from tests.support.web_records import full
from tests.support.web_site import WebSite


def page(name: str) -> str:
    answer = WebSite(full()).client.get(f"/nodes/{name}")
    assert answer.status_code == 200
    return answer.text


def test_lifecycle_and_user() -> None:
    """WP-46"""
    text = page("0000000001")
    assert "is in use for request 200-0000000002, job unit" in text
    assert '<dt>Request</dt><dd><a href="../requests/200-0000000002">200-0000000002</a></dd>' in text
    assert re.search(r"created</span>.*50 s later.*in-use</span>", text, re.DOTALL)
    assert "<dt>Locked</dt><dd>yes</dd>" in text


def test_held_node() -> None:
    """WP-46"""
    text = page("0000000002")
    assert '<span class="state waiting">hold</span>' in text
    assert "<dt>Reason</dt><dd>look</dd>" in text


def test_who_has_the_lock() -> None:
    """WP-100: nobody asks about a node that is not locked."""
    asked: list[str] = []

    def locker(node_id: str) -> str:
        asked.append(node_id)
        return "Zuul executor ze01"

    client = WebSite(dataclasses.replace(full(), locker=locker)).client
    assert "<dt>Locked by</dt><dd>Zuul executor ze01</dd>" in client.get("/nodes/0000000001").text
    assert client.get("/api/v1/nodes/0000000001").json()["locked_by"] == "Zuul executor ze01"
    assert "Locked by" not in client.get("/nodes/0000000002").text
    assert client.get("/api/v1/nodes/0000000002").json()["locked_by"] is None
    assert client.get("/api/v1/nodes").json()["items"][0]["locked_by"] is None
    assert set(asked) == {"0000000001"}
