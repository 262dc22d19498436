# SPDX-License-Identifier: Apache-2.0
"""What holds for each page: links lead somewhere, texts are texts, nothing is shown without bound."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from nodepool.web.pages.frame import NAVIGATION
from nodepool.web.snapshot import WebSnapshot
from tests.support.web_crawl import crawl
from tests.support.web_records import HOSTILE, full, many
from tests.support.web_site import WebSite

LISTS = [f"/{path}" for path, _ in NAVIGATION]
#: Elements that have no end.
VOID = {"meta", "link", "input", "br", "hr"}


class Nesting(HTMLParser):
    """Notes the elements, and what is wrong with them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"{tag} ends at {self.getpos()}")


def test_each_link_leads_somewhere() -> None:
    """WP-44"""
    pages = crawl(WebSite(full()).client)
    assert {address: answer.status_code for address, answer in pages.items() if answer.status_code != 200} == {}
    for page in (
        "/requests/200-0000000001",
        "/nodes/0000000001",
        "/providers/cloud-1",
        "/labels/gpu",
        "/images/debian",
    ):
        assert page in pages


@pytest.mark.parametrize("snapshot", [None, full(), full(HOSTILE)], ids=["empty", "full", "hostile"])
def test_pages_are_well_formed(snapshot: WebSnapshot | None) -> None:
    for address, answer in crawl(WebSite(snapshot).client).items():
        if answer.headers["content-type"].startswith("text/html"):
            nesting = Nesting()
            nesting.feed(answer.text)
            assert (nesting.wrong, nesting.open) == ([], []), address
            assert len(nesting.ids) == len(set(nesting.ids)), address


def test_hostile_texts() -> None:
    """WP-43: on no page a text of another program is markup, or moves what stands beside it."""
    pages = crawl(WebSite(full(HOSTILE)).client)
    assert {answer.status_code for answer in pages.values()} == {200}
    texts = [answer.text for answer in pages.values() if answer.headers["content-type"].startswith("text/html")]
    assert len(texts) > 20
    for text in texts:
        assert "<script>alert" not in text
        assert not {"\x1b", "\u202e"} & set(text)
        assert re.findall(r"\son[a-z]+=|\sstyle=", text) == []


@pytest.mark.parametrize("address", LISTS)
def test_nothing_is_there(address: str) -> None:
    """WP-43"""
    answer = WebSite().client.get(address)
    assert answer.status_code == 200
    assert re.search(r"No |no ", answer.text.partition("<main")[2])


@pytest.mark.parametrize("address", LISTS)
def test_where_one_is(address: str) -> None:
    text = WebSite(full()).client.get(address).text
    assert text.count('aria-current="page"') == 1
    assert re.search(rf'<a href="./{address[1:]}" aria-current="page">', text)


@pytest.mark.parametrize("address", ["/nodes", "/requests", "/labels", "/"])
def test_many_records(address: str) -> None:
    """WP-43"""
    text = WebSite(many(3000)).client.get(address).text
    assert text.count("<tr>") <= 101


@pytest.mark.parametrize("kind", ["requests", "nodes", "providers", "labels", "images"])
def test_unknown_name(kind: str) -> None:
    """WP-44"""
    answer = WebSite(full()).client.get(f"/{kind}/%3Cb%3Enothing%3C%2Fb%3E")
    assert answer.status_code == 404
    assert "&lt;b&gt;nothing&lt;/b&gt;" in answer.text
    assert "To the overview" in answer.text


@pytest.mark.parametrize(
    "query",
    [
        *("state=redy", "older_than=5", "sort=nothing", "sort=-", "page=0", "page=x", "page=-1", "limit=1001"),
        *("limit=0", "limit=1e9", "page=%00", "page=²", f"label={'x' * 600}"),
    ],
)
def test_address_that_cannot_be_understood(query: str) -> None:
    """WP-44"""
    answer = WebSite(full()).client.get(f"/nodes?{query}")
    assert answer.status_code == 400
    assert 'role="alert"' in answer.text


@pytest.mark.parametrize("address", LISTS)
@pytest.mark.parametrize(
    "query", ["q=%ff%fe", "label=[", "label=*&provider=!!", "unknown=1&q=<b>", "q", "&&=;", "page=9999"]
)
def test_odd_addresses(address: str, query: str) -> None:
    answer = WebSite(full()).client.get(f"{address}?{query}")
    assert answer.status_code == 200
    assert "<b>" not in answer.text
