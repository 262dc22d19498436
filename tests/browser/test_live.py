# SPDX-License-Identifier: Apache-2.0
"""Pages follow the records in ZooKeeper, without a reload, and disturb nobody who works with them (WP-50).

A page asks again every 30 seconds in any case; the deadline of the tests is less, see `DEADLINE_MS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from nodepool.model import states
from nodepool.web.snapshot import RecordKind
from tests.support.chromium import WatchedPage, watched_page
from tests.support.launcher_config import StaticProvider, static_hosts, write_config
from tests.support.served_site import ServedSite
from tests.support.serving_process import ServingProcess
from tests.support.web_records import with_node

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from tests.support.pool_znodes import PoolZnodes
    from tests.support.zookeeper import ZooKeeperServer

STREAM = re.compile(r"/api/v1/events/stream\?page=")


@pytest.fixture
def live(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, browser: Browser) -> Iterator[WatchedPage]:
    """A window for the pages of a ``nodepool-web``."""
    config = tmp_path / "nodepool.yaml"
    webapp = {"webapp": {"listen_address": "127.0.0.1", "port": 0}}
    write_config(config, zookeeper, chroot, [StaticProvider(static_hosts(1))], extra=webapp)
    process = ServingProcess("nodepool.cmd.web", config)
    process.start()
    try:
        with watched_page(browser, process.wait_ready()) as page:
            yield page
            assert page.problems == []
    finally:
        process.stop()


def open_live(live: WatchedPage, address: str) -> Page:
    """Open a page and wait until it is told of changes. A reload would lose the mark that is made here."""
    with live.page.expect_response(STREAM):
        page = live.open(address)
    page.evaluate("() => { window.notReloaded = true; }")
    return page


def row(page: Page, node_id: str) -> Locator:
    return page.get_by_role("row").filter(has_text=node_id)


def test_rows_come_change_and_go(live: WatchedPage, znodes: PoolZnodes) -> None:
    stays = znodes.add_node("ready")
    page = open_live(live, "/nodes")
    expect(row(page, stays)).to_contain_text("ready")
    comes = znodes.add_node("building")
    expect(row(page, comes)).to_contain_text("building")
    znodes.change_node(comes, state="in-use")
    expect(row(page, comes)).to_contain_text("in-use")
    znodes.vanish(comes)
    expect(row(page, comes)).to_have_count(0)
    expect(row(page, stays)).to_contain_text("ready")
    assert page.evaluate("() => window.notReloaded")


def test_page_of_a_request(live: WatchedPage, znodes: PoolZnodes) -> None:
    """Also a page about one thing follows it, to its end."""
    request_id = znodes.submit(["small"])
    page = open_live(live, f"/requests/{request_id}")
    banner = page.locator("#live .banner")
    expect(banner).to_contain_text(request_id)
    expect(banner).to_contain_text("waits")
    znodes.change_request(request_id, state="pending")
    expect(banner).to_contain_text("is served")
    znodes.delete_request(request_id)
    expect(banner).to_contain_text(re.compile(f"Request {request_id} .*ended"))
    assert page.evaluate("() => window.notReloaded")


def test_typed_text_and_focus_stay(live: WatchedPage, znodes: PoolZnodes) -> None:
    """A field with half of a text in it, and a link that somebody is about to follow."""
    node_id = znodes.add_node("ready")
    page = open_live(live, "/nodes")
    field = page.locator("#filter-label")
    field.press_sequentially("gpu-")
    field.press("ArrowLeft")
    znodes.change_node(node_id, state="in-use")
    expect(row(page, node_id)).to_contain_text("in-use")
    field_now = page.locator("#filter-label")
    expect(field_now).to_be_focused()
    expect(field_now).to_have_value("gpu-")
    assert page.evaluate("() => document.activeElement.selectionStart") == 3
    link = row(page, node_id).get_by_role("link", name=node_id)
    link.focus()
    znodes.change_node(node_id, state="used")
    expect(row(page, node_id)).to_contain_text("used")
    expect(link).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{live.root}/nodes/{node_id}")


def test_filter_is_in_the_address(live: WatchedPage, znodes: PoolZnodes) -> None:
    """Who gets the address sees the same rows; rows that come obey the filter, too."""
    znodes.add_node("ready", type=["small"])
    gpu = znodes.add_node("ready", type=["gpu-1"])
    page = open_live(live, "/nodes")
    expect(row(page, "small")).to_have_count(1)
    page.locator("#filter-label").fill("gpu-*")
    with page.expect_response(STREAM):
        page.get_by_role("button", name="Filter").click()
        page.wait_for_url(re.compile(r"/nodes\?.*label=gpu-(\*|%2A)"))
    expect(row(page, gpu)).to_have_count(1)
    expect(row(page, "small")).to_have_count(0)
    znodes.add_node("building", type=["small"])
    later = znodes.add_node("building", type=["gpu-2"])
    expect(row(page, later)).to_have_count(1)
    expect(row(page, "small")).to_have_count(0)
    expect(page.locator("#filter-label")).to_have_value("gpu-*")
    texts = page.locator("tbody td:first-child").all_inner_texts()
    assert sorted(texts) == sorted([gpu, later])
    page.reload()
    assert page.locator("tbody td:first-child").all_inner_texts() == texts
    page.get_by_role("link", name="Show all").click()
    expect(row(page, "small")).to_have_count(2)


@pytest.fixture
def building() -> Iterator[ServedSite]:
    """A site with one node, which is being built."""
    with ServedSite(with_node(1, states.BUILDING)) as site:
        yield site


def test_restart_of_the_server(browser: Browser, building: ServedSite) -> None:
    """The page says that it is old, and follows the records again when the server is back."""
    with watched_page(browser, building.url) as watched:
        page = open_live(watched, "/nodes")
        stale = page.locator("#stale")
        node = row(page, "0000000007")
        expect(stale).to_be_hidden()
        expect(node).to_contain_text("building")
        building.stop()
        expect(stale).to_be_visible()
        expect(stale).to_contain_text("The connection to Nodepool is lost")
        expect(node).to_contain_text("building")
        # What happens meanwhile is not told by any event.
        building.show(with_node(2, states.READY), RecordKind.NODES)
        building.start()
        expect(stale).to_be_hidden()
        expect(node).to_contain_text("ready")
        building.show(with_node(3, states.IN_USE), RecordKind.NODES, "0000000007")
        expect(node).to_contain_text("in-use")
        assert page.evaluate("() => window.notReloaded")


def show_tab(page: Page, *, hidden: bool) -> None:
    """As when somebody goes to another tab, or comes back."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_hidden_tab(browser: Browser, building: ServedSite) -> None:
    """A tab that nobody sees takes none of the few connections that a browser has."""
    with watched_page(browser, building.url) as watched:
        page = open_live(watched, "/nodes")
        expect(row(page, "0000000007")).to_contain_text("building")
        with page.expect_event("requestfailed", lambda request: STREAM.search(request.url) is not None):
            show_tab(page, hidden=True)
        building.show(with_node(2, states.READY), RecordKind.NODES)
        with page.expect_response(STREAM):
            show_tab(page, hidden=False)
        expect(row(page, "0000000007")).to_contain_text("ready")
