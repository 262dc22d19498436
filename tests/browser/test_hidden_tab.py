# SPDX-License-Identifier: Apache-2.0
"""A tab that nobody sees takes none of the few connections that a browser has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from nodepool.model import states
from nodepool.web.snapshot import RecordKind
from tests.support.chromium import watched_page
from tests.support.served_site import ServedSite
from tests.support.web_records import with_node

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

STREAM = "**/api/v1/events/stream"


def show(page: Page, *, hidden: bool) -> None:
    """As when somebody goes to another tab, or comes back."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_comes_back(browser: Browser) -> None:
    """WP-50"""
    site = ServedSite(with_node(1, states.BUILDING))
    site.start()
    try:
        with watched_page(browser, site.url) as watched:
            with watched.page.expect_response(STREAM):
                page = watched.open("/nodes")
            row = page.get_by_role("row").filter(has_text="0000000007")
            expect(row).to_contain_text("building")
            with page.expect_event("requestfailed", lambda request: request.url.endswith("/events/stream")):
                show(page, hidden=True)
            site.show(with_node(2, states.READY), RecordKind.NODES)
            with page.expect_response(STREAM):
                show(page, hidden=False)
            expect(row).to_contain_text("ready")
    finally:
        site.stop()
