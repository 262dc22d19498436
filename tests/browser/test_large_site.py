# SPDX-License-Identifier: Apache-2.0
"""Pages of a site with thousands of nodes and requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest
from playwright.sync_api import expect

from tests.support import web_records
from tests.support.chromium import WatchedPage, watched_page
from tests.support.served_site import ServedSite

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NODES: Final = 6000


@pytest.fixture
def large(browser: Browser) -> Iterator[WatchedPage]:
    with ServedSite(web_records.many(NODES)) as site, watched_page(browser, site.url) as page:
        yield page
        assert page.problems == []


def test_lists_are_in_parts(large: WatchedPage) -> None:
    """A page has a hundred rows; the next ones are a link away (WP-43)."""
    page = large.open("/nodes")
    expect(page.locator("#live")).to_contain_text(f"1 to 100 of {NODES}")
    expect(page.locator("tbody tr")).to_have_count(100)
    first = page.locator("tbody tr td:first-child").first.inner_text()
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#live")).to_contain_text(f"101 to 200 of {NODES}")
    assert page.locator("tbody tr td:first-child").first.inner_text() != first
    page.get_by_role("link", name="Previous").click()
    expect(page.locator("tbody tr td:first-child").first).to_have_text(first)


@pytest.mark.parametrize("address", ["/", "/requests", "/labels", "/labels/gpu", "/providers"])
def test_other_pages(large: WatchedPage, address: str) -> None:
    """They are there, and bounded."""
    page = large.open(address)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.locator("#live a").count() < 1500
