# SPDX-License-Identifier: Apache-2.0
"""One browser for all tests of a process, and a site for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support import web_records
from tests.support.chromium import WatchedPage, running_browser, watched_page
from tests.support.served_site import ServedSite
from tests.support.web_crawl import crawl
from tests.support.web_site import WebSite

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Use `watched_page` for a window of it."""
    with running_browser() as browser:
        yield browser


@pytest.fixture
def still_site() -> Iterator[ServedSite]:
    """A site with something of everything. Nothing in it changes."""
    with ServedSite(web_records.full(), history=web_records.kept()) as site:
        yield site


@pytest.fixture
def still_page(browser: Browser, still_site: ServedSite) -> Iterator[WatchedPage]:
    """A window for the pages of `still_site`."""
    with watched_page(browser, still_site.url) as page:
        yield page


@pytest.fixture(scope="session")
def addresses() -> list[str]:
    """Of all pages of `still_site`, without order and filters; the last ones: a wrong filter, and what is not there."""
    answers = crawl(WebSite(web_records.full(), history=web_records.kept()).client)
    pages = {
        address.partition("?")[0]
        for address, answer in answers.items()
        if answer.headers["content-type"].startswith("text/html")
    }
    return [*sorted(pages), "/nodes?ended=yes", "/search?q=1", "/nodes?older_than=x", "/nodes/0000009999"]
