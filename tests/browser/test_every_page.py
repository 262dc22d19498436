# SPDX-License-Identifier: Apache-2.0
"""What holds for each page, whatever it shows (WP-51)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.axe import load_axe, violations
from tests.support.chromium import NARROW, WIDE, WatchedPage, watched_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.support.served_site import ServedSite

#: What can be reached with the Tab key.
_REACHABLE = """() => [...document.querySelectorAll("a[href], input, select, button, [tabindex='0']")]
    .filter(one => one.type !== "hidden" && one.checkVisibility())"""


def test_nothing_is_wrong_and_nothing_comes_from_elsewhere(still_page: WatchedPage, addresses: list[str]) -> None:
    """No request leaves the host, nothing breaks the policy, no script fails (WP-40)."""
    assert len(addresses) > 15
    for address in addresses[:-2]:
        page = still_page.open(address)
        page.wait_for_function("() => window.htmx !== undefined")
        # As when records have changed: the live part is asked for again.
        with page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true") as told:
            page.evaluate("() => document.body.dispatchEvent(new Event('show-again'))")
        assert told.value.status == 200, address
    assert still_page.problems == []


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_axe(browser: Browser, still_site: ServedSite, addresses: list[str], width: int) -> None:
    """WP-51: axe-core finds nothing, light or dark; no page is wider than its window."""
    found = []
    with watched_page(browser, still_site.url, width) as watched:
        for address in addresses:
            page = watched.open(address)
            load_axe(page)
            page.emulate_media(color_scheme="light")
            found += [f"{address}: {line}" for line in violations(page)]
            # Nothing else than colours is different.
            page.emulate_media(color_scheme="dark")
            found += [f"{address}, dark: {line}" for line in violations(page, "color-contrast")]
            too_wide: int = page.evaluate("() => document.documentElement.scrollWidth - window.innerWidth")
            found += [f"{address} is {too_wide} pixels too wide"] if too_wide > 0 else []
            scrolls: int = page.locator(".scroll").evaluate_all(
                "all => all.filter(e => e.scrollWidth > e.clientWidth).length"
            )
            found += [f"{address} has a table that scrolls"] if width == NARROW and scrolls else []
    assert not found, "\n".join(found)


def test_header(browser: Browser, still_site: ServedSite) -> None:
    """WP-104: the key / goes to the search; WP-51: on a telephone the header has two lines."""
    with watched_page(browser, still_site.url, NARROW) as watched:
        page = watched.open("/nodes")
        page.wait_for_function("() => window.htmx !== undefined")
        assert (page.locator("header").bounding_box() or {})["height"] <= 88
        page.keyboard.press("/")
        page.keyboard.type("192.0.2.1")
        with page.expect_navigation(url="**/nodes/0000000001"):
            page.keyboard.press("Enter")


def test_without_javascript(
    browser: Browser, still_site: ServedSite, still_page: WatchedPage, addresses: list[str]
) -> None:
    """WP-51: each page has the same texts and leads to the same pages."""
    with watched_page(browser, still_site.url, java_script_enabled=False) as plain:
        for address in addresses:
            page = plain.open(address)
            with_scripts = still_page.open(address)
            assert _texts(page) == _texts(with_scripts), address
            assert _links(page) == _links(with_scripts), address


def test_keyboard(still_page: WatchedPage, addresses: list[str]) -> None:
    """WP-51: the Tab key reaches each link and field, and who looks sees where it is."""
    for address in addresses:
        page = still_page.open(address)
        wanted: int = page.evaluate(f"() => ({_REACHABLE})().length")
        reached: set[int] = set()
        for _ in range(wanted + 5):
            page.keyboard.press("Tab")
            told: dict[str, Any] = page.evaluate(
                f"""() => {{
                const one = document.activeElement, style = getComputedStyle(one);
                return {{
                    number: ({_REACHABLE})().indexOf(one),
                    what: one.outerHTML.slice(0, 200),
                    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
                }};
                }}"""
            )
            if told["number"] >= 0:
                assert told["seen"], f"{address}: {told['what']}"
                reached.add(told["number"])
        assert reached == set(range(wanted)), address


def _texts(page: Page) -> list[str]:
    # Charts are drawn by a script; without it there is a link to their numbers.
    found: list[str] = page.locator(
        ":is(main h1, main h2, main td, main dd, main li, main .banner):not(.charts *, noscript *)"
    ).all_inner_texts()
    return found


def _links(page: Page) -> list[str]:
    return [link.get_attribute("href") or "" for link in page.locator("a:not(.charts *, noscript *)").all()]
