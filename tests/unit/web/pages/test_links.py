# SPDX-License-Identifier: Apache-2.0
"""What is not there any more has no link (WP-44)."""

from __future__ import annotations

import pytest

from nodepool.web.pages.frame import Links
from tests.support.web_records import full

LINKS = Links(full())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (LINKS.pool("cloud-1/main"), "providers/cloud-1"),
        (LINKS.pool("cloud-3"), "providers/cloud-3"),
        (LINKS.pool("gone/main"), None),
        (LINKS.provider(None), None),
        (LINKS.label("gpu"), "labels/gpu"),
        (LINKS.label("broken"), "labels/broken"),
        (LINKS.label("gone"), None),
        (LINKS.node("0000000001"), "nodes/0000000001"),
        (LINKS.node("0000000099"), None),
        (LINKS.request("200-0000000002"), "requests/200-0000000002"),
        (LINKS.request("200-0000000099"), None),
        (LINKS.image("debian"), "images/debian"),
        (LINKS.tenant("t 1"), "requests?tenant=t%201"),
        (LINKS.subject("node 0000000001"), "nodes/0000000001"),
        (LINKS.subject("request 200-0000000001"), "requests/200-0000000001"),
        (LINKS.subject("provider cloud-2"), "providers/cloud-2"),
        (LINKS.subject("pool cloud-2/main"), "providers/cloud-2"),
        (LINKS.subject("label gpu of cloud-1/main"), "labels/gpu"),
        (LINKS.subject("host zuul@node9:22"), "hosts?q=zuul%40node9%3A22"),
        (LINKS.subject("launcher l1"), "launchers?q=l1"),
        (LINKS.subject("something else"), None),
        (LINKS.subject(""), None),
    ],
)
def test_links(found: str | None, expected: str | None) -> None:
    assert found == expected


def test_name_that_no_address_can_have() -> None:
    assert Links(full("\ud800")).label("gpu\ud800") is None
