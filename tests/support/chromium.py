# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium, driven by Playwright, with a look at all that a page complains of and asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from playwright.sync_api import expect, sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page, Request

PROGRAM: Final = Path("/usr/bin/chromium")
#: For whatever a page is to show or do. Generous, because it only costs time when something is broken; but less than
#: the 30 seconds after which a page asks in any case: what comes before that, came with the stream of events.
DEADLINE_MS: Final = 25_000
#: Widths of a screen and of a telephone, in pixels of CSS.
WIDE, NARROW = 1440, 390
_HEIGHTS: Final = {WIDE: 900, NARROW: 844}
_OPTIONS: Final = (
    # The tests may run as root, and /dev/shm may be small, as in a container.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    # Whatever the browser itself wants to ask: nothing but this host has an address.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """The browser; without a display. Starting takes some seconds."""
    assert PROGRAM.exists(), f"{PROGRAM} is missing: install the Debian package chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=list(_OPTIONS), timeout=4 * DEADLINE_MS)
        yield browser
        browser.close()


class WatchedPage:
    """A page, and what was wrong with it.

    :param root: address of the site. Each request that goes elsewhere is a problem.
    """

    def __init__(self, page: Page, root: str) -> None:
        self.page = page
        self.root = root
        #: What the page complained of (errors of scripts, violations of the policy, files that are missing), and
        #: requests to others.
        self.problems: list[str] = []
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.problems.append(f"{page.url}: {error}"))
        page.on("request", self._note_request)

    def open(self, address: str) -> Page:
        """Go there and wait until everything is loaded and the scripts have run.

        :param address: relative to the root of the site, with a slash at its begin.
        """
        self.page.goto(f"{self.root}{address}", wait_until="load")
        return self.page

    def _note_message(self, message: ConsoleMessage) -> None:
        # Also of a page that tells that there is no such thing (status 404), the browser tells.
        itself = message.location["url"].partition("?")[0] == self.page.url.partition("?")[0]
        if message.type in ("error", "warning") and not (itself and "404" in message.text):
            self.problems.append(f"{self.page.url}: {message.text}")

    def _note_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.root}/", "data:")):
            self.problems.append(f"{self.page.url} asks for {request.url}")


@contextmanager
def watched_page(browser: Browser, root: str, width: int = WIDE, **settings: Any) -> Iterator[WatchedPage]:
    """A page in a window of its own, without cookies.

    :param width: `WIDE` or `NARROW`.
    :param settings: of the window, see Playwright's ``Browser.new_context``.
    """
    with browser.new_context(
        viewport={"width": width, "height": _HEIGHTS[width]}, locale="en-GB", timezone_id="UTC", **settings
    ) as context:
        context.set_default_timeout(DEADLINE_MS)
        expect.set_options(timeout=DEADLINE_MS)
        yield WatchedPage(context.new_page(), root)
