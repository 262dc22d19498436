# SPDX-License-Identifier: Apache-2.0
"""The pictures of the overview (WP-48)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from nodepool.model import states
from nodepool.model.status import LaunchesStatus, LimitStatus
from nodepool.web.history import History
from nodepool.web.snapshot import WebSnapshot
from tests.support import observed
from tests.support.axe import load_axe, violations
from tests.support.chromium import NARROW, WIDE, watched_page
from tests.support.served_site import ServedSite

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PROVIDERS = 8


def at(minutes: float) -> WebSnapshot:
    """So many minutes ago each provider had one node more in use than the one before."""
    names = [f"cloud-{number}" for number in range(1, PROVIDERS + 1)]
    limits = [LimitStatus("pool", "instances", 10)]
    statuses = [observed.status(name, limits=limits, launches=LaunchesStatus(0, 5, 1)) for name in names]
    nodes = [
        observed.node(10 * number + each, provider=name, state=states.IN_USE)
        for number, name in enumerate(names, 1)
        for each in range(number)
    ]
    waiting = [observed.request(number, "absent") for number in range(3)]
    seen = observed.seen(*waiting, nodes=observed.known(*nodes), statuses=statuses)
    return WebSnapshot(1, seen.at(observed.NOW - 60 * minutes))


@pytest.fixture
def site() -> Iterator[ServedSite]:
    """A site of which two hours are known."""
    history = History()
    for minutes in range(120, 0, -1):
        history.sample(at(minutes))
    with ServedSite(at(0), history=history) as site:
        yield site


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_pictures(browser: Browser, site: ServedSite, width: int) -> None:
    """One for all, some for the busiest providers; numbers of a moment by the keyboard; the range is in the address."""
    with watched_page(browser, site.url, width) as watched:
        page = watched.open("/?range=24h")
        pictures = page.locator(".charts figure")
        expect(pictures).to_have_count(4 + 6)
        assert pictures.locator("canvas").count() == 10
        first = pictures.nth(4)
        numbers = "in use 8, building 0, ready 0, deleting 0, hold 0, limit 10, most at a time 8, at 2025-11-22 10:54"
        expect(first).to_have_attribute("aria-label", f"cloud-8: {numbers}")
        load_axe(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert violations(page) == []
        assert page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth") <= 0

        page.get_by_role("link", name="1 h").click()
        expect(page.get_by_role("link", name="1 h")).to_have_attribute("aria-current", "true")
        assert page.url.endswith("/?range=1h")
        moment = first.locator("li").last
        expect(moment).to_have_text("at 2025-11-22 10:55:40")
        first.focus()
        for key, text in (("ArrowLeft", "10:54:50"), ("ArrowLeft", "10:54:40"), ("ArrowRight", "10:54:50")):
            page.keyboard.press(key)
            expect(moment).to_have_text(f"at 2025-11-22 {text}")

        page.get_by_role("link", name="2 more providers").click()
        expect(pictures).to_have_count(4 + PROVIDERS)
        assert watched.problems == []
