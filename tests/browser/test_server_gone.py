# SPDX-License-Identifier: Apache-2.0
"""A page whose server is restarted: it says that it is old, and follows the records again when it is back (WP-50)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from nodepool.model import states
from nodepool.web.snapshot import RecordKind
from tests.support.chromium import watched_page
from tests.support.served_site import ServedSite
from tests.support.web_records import with_node

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def site() -> Iterator[ServedSite]:
    site = ServedSite(with_node(1, states.BUILDING))
    site.start()
    yield site
    site.stop()


def test_restart_of_the_server(browser: Browser, site: ServedSite) -> None:
    with watched_page(browser, site.url) as watched:
        page = watched.open("/nodes")
        page.evaluate("() => { window.notReloaded = true; }")
        stale = page.locator("#stale")
        row = page.get_by_role("row").filter(has_text="0000000007")
        expect(stale).to_be_hidden()
        expect(row).to_contain_text("building")
        site.stop()
        expect(stale).to_be_visible()
        expect(stale).to_contain_text("The connection to Nodepool is lost")
        expect(row).to_contain_text("building")
        # What happens meanwhile is not told by any event.
        site.show(with_node(2, states.READY), RecordKind.NODES)
        site.start()
        expect(stale).to_be_hidden()
        expect(row).to_contain_text("ready")
        site.show(with_node(3, states.IN_USE), RecordKind.NODES, "0000000007")
        expect(row).to_contain_text("in-use")
        assert page.evaluate("() => window.notReloaded")
