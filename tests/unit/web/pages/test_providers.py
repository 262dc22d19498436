# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.support.web_records import full
from tests.support.web_site import WebSite


def page(name: str) -> str:
    answer = WebSite(full()).client.get(f"/providers/{name}")
    assert answer.status_code == 200
    return answer.text


def test_pools_limits_labels_and_what_waits() -> None:
    """WP-46"""
    text = page("cloud-1")
    for caption in ("Pools", "Limits", "Labels that cannot be served", "Waiting"):
        assert f"<h2>{caption}</h2>" in text
    assert "no flavor" in text
    assert '<a href="../nodes?provider=cloud-1&amp;state=in-use">1 in-use</a>' in text
    assert "<h2>Hosts</h2>" not in text


def test_hosts() -> None:
    """WP-46"""
    text = page("lab")
    assert "<h2>Hosts</h2>" in text
    assert "cannot connect" in text


def test_provider_that_is_not_served() -> None:
    """WP-46"""
    assert "<dt>Not served</dt><dd>no cloud</dd>" in page("cloud-3")
