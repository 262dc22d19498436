# SPDX-License-Identifier: Apache-2.0
"""Who changes something has logged in: the forms of the pages (WP-80 to WP-96)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from nodepool.web.changes import Access, Actions, Fields, Wish
from nodepool.web.logins import Tokens
from tests.support import web_records
from tests.support.axe import load_axe, violations
from tests.support.chromium import WatchedPage, watched_page
from tests.support.served_site import ServedSite
from tests.support.web_tokens import authenticator, operator_rule, token, viewer_token

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NODE = "/nodes/0000000001"


class NotedHolds(Actions):
    """What was asked for."""

    def __init__(self) -> None:
        self.held: list[tuple[str, str, str]] = []
        self.begun: list[tuple[str, str, str, str]] = []

    def begin(self, path: Fields, body: Fields, wish: Wish) -> Fields:
        self.begun.append((path["kind"], path["name"], str(body["mode"]), wish.reason))
        return {}

    def hold(self, path: Fields, _body: Fields, wish: Wish) -> Fields:
        self.held.append((path["id"], wish.operator, wish.reason))
        return {}


@pytest.fixture
def holds() -> NotedHolds:
    return NotedHolds()


@pytest.fixture
def guarded(browser: Browser, holds: NotedHolds) -> Iterator[WatchedPage]:
    """A window for the pages of a site with one authenticator."""
    access = Access(Tokens([authenticator()], [operator_rule()]), holds, False, ())
    with ServedSite(web_records.full(), access=access) as site, watched_page(browser, site.url) as page:
        yield page
        assert page.problems == []


def log_in(guarded: WatchedPage, with_token: str) -> None:
    page = guarded.open(NODE)
    page.get_by_role("link", name="Log in").click()
    load_axe(page)
    assert violations(page) == []
    page.get_by_label("Token").fill(with_token)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{guarded.root}{NODE}")


def test_operator_holds_a_node(guarded: WatchedPage, holds: NotedHolds) -> None:
    page = guarded.open(NODE)
    expect(page.get_by_role("button", name="Hold")).to_have_count(0)
    log_in(guarded, token())
    load_axe(page)
    assert violations(page) == []
    page.locator("summary", has_text="Hold").click()
    form = page.locator("details[open] form.action")
    form.get_by_label("Reason").fill("a look at its disk")
    form.get_by_label("For").fill("8 h")
    form.get_by_role("button", name="Hold").click()
    # In place: the page is not loaded again (WP-106).
    expect(form.get_by_role("alert")).to_contain_text("'8 h' is no duration")
    expect(form.get_by_label("Reason")).to_have_value("a look at its disk")
    expect(form.get_by_label("For")).to_have_attribute("aria-invalid", "true")
    assert violations(page) == []
    assert [problem for problem in guarded.problems if "status of 400" in problem] == guarded.problems
    guarded.problems.clear()
    form.get_by_label("For").fill("8h")
    # Then it is.
    with page.expect_navigation(url=f"{guarded.root}{NODE}"):
        form.get_by_role("button", name="Hold").click()
    assert holds.held == [("0000000001", "alice (web)", "a look at its disk")]


def test_login_page_follows_no_events(browser: Browser, holds: NotedHolds) -> None:
    """Where a login is required, the stream is refused, and the page would say that the connection is lost."""
    access = Access(Tokens([authenticator()], [operator_rule()]), holds, True, ())
    with ServedSite(web_records.full(), access=access) as site, watched_page(browser, site.url) as watched:
        page = watched.open("/login")
        expect(page.get_by_label("Token")).to_be_visible()
        expect(page.locator("script[data-stream]")).to_have_count(0)
        expect(page.locator("#stale")).to_be_hidden()
        assert watched.problems == []


def test_viewer_sees_no_forms(guarded: WatchedPage) -> None:
    log_in(guarded, viewer_token())
    expect(guarded.page.get_by_role("link", name="Log in")).to_have_count(0)
    expect(guarded.page.locator("form.action").filter(has_text="Reason")).to_have_count(0)


@pytest.mark.parametrize(
    ("path", "button", "begun"),
    [
        ("/launchers?q=17", "Drain", ("launcher", "l1", "drain", "a new disk")),
        ("/hosts?q=node8", "Quarantine", ("host", "zuul@node8:22", "quarantine", "a new disk")),
        ("/providers/cloud-2", "Pause", ("provider", "cloud-2", "pause", "a new disk")),
    ],
)
def test_maintenance_by_buttons(
    guarded: WatchedPage, holds: NotedHolds, path: str, button: str, begun: tuple[str, str, str, str]
) -> None:
    """WP-97, WP-98"""
    log_in(guarded, token())
    page = guarded.open(path)
    if page.get_by_role("link", name="Change").count():
        page.get_by_role("link", name="Change").click()
        page.wait_for_url(lambda url: "act=" in url)
    load_axe(page)
    assert violations(page) == []
    if not page.locator("details[open] form.action").count():
        page.locator("summary", has_text=button).first.click()
    form = page.locator("details[open] form.action")
    form.get_by_label("Reason").fill("a new disk")
    mark = form.get_by_role("checkbox")
    if mark.count():
        # The browser itself does not send the form without it.
        form.get_by_role("button", name=button).click()
        assert page.evaluate("() => document.querySelector('details[open] input:invalid') !== null")
        assert holds.begun == []
        mark.check()
    with page.expect_navigation(url=f"{guarded.root}{path}"):
        form.get_by_role("button", name=button).click()
    assert holds.begun == [begun]
