# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.support.web_records import full
from tests.support.web_site import WebSite


def test_page() -> None:
    """WP-46"""
    text = WebSite(full()).client.get("/labels/gpu").text
    assert "<dt>Open requests</dt><dd>" in text
    assert '<a href="../providers/cloud-1">cloud-1/main</a>' in text
