# SPDX-License-Identifier: Apache-2.0
"""The pictures of doc/source/how-to/web-pages.rst: with the variable REWRITE_SCREENSHOTS the page gets new ones."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from nodepool.model import states
from tests.support import observed, web_records
from tests.support.chromium import NARROW, WIDE, watched_page
from tests.support.served_site import ServedSite

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from nodepool.model.node import Node
    from nodepool.web.snapshot import WebSnapshot

PAGE: Final = Path(__file__).parents[2] / "doc" / "source" / "how-to" / "web-pages.rst"
#: Name of the picture -> address, width, colours.
PICTURES: Final[dict[str, tuple[str, int, Any]]] = {
    "web-overview.png": ("/", WIDE, "light"),
    "web-request.png": ("/requests/200-0000000001", WIDE, "light"),
    "web-nodes.png": ("/nodes?label=gpu", WIDE, "dark"),
    "web-telephone.png": ("/requests/200-0000000001", NARROW, "light"),
}
#: Of all pictures together: the repository keeps each version of them.
MOST_BYTES: Final = 600_000
_JOBS: Final = (states.IN_USE, states.READY, states.BUILDING, states.IN_USE, states.HOLD, states.USED, states.DELETING)


@pytest.fixture
def site() -> Iterator[ServedSite]:
    with ServedSite(_sample()) as site:
        yield site


@pytest.mark.parametrize("name", PICTURES)
def test_picture(browser: Browser, site: ServedSite, tmp_path: Path, name: str) -> None:
    """The page has the picture, of the width that it says."""
    address, width, scheme = PICTURES[name]
    assert name in PAGE.read_text(encoding="utf-8")
    place = PAGE.parent if os.environ.get("REWRITE_SCREENSHOTS") else tmp_path
    with watched_page(browser, site.url, width, color_scheme=scheme) as watched:
        page = watched.open(address)
        # Written here: Playwright would leave a thread behind.
        (place / name).write_bytes(page.screenshot(animations="disabled"))
    kept = (PAGE.parent / name).read_bytes()
    assert struct.unpack(">I", kept[16:20])[0] == width


def test_size() -> None:
    assert sum((PAGE.parent / name).stat().st_size for name in PICTURES) <= MOST_BYTES


def _sample() -> WebSnapshot:
    """`web_records.full` with more nodes in two clouds."""
    small = web_records.full()
    more = [_node(number) for number in range(5, 25)]
    nodes = {**small.observed.nodes, **{node.key: node for node in more}}
    return replace(small, observed=replace(small.observed, nodes=nodes))


def _node(number: int) -> Node:
    cloud = f"cloud-{1 + number % 2}"
    node = observed.node(number, "gpu", state=_JOBS[number % len(_JOBS)], provider=cloud)
    node.state_time = observed.NOW - 37 * number
    node.public_ipv4, node.hostname = f"203.0.113.{number}", f"np{number:010}"
    return node
