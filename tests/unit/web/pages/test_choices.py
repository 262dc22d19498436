# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from starlette.datastructures import QueryParams

from nodepool.listing.nodes import Filter
from nodepool.listing.table import Column
from nodepool.web.pages.frame import PageError
from nodepool.web.pages.lists import MAX_NAMES, ROWS, Choices, Pages, choices_of


def choices(query: str = "") -> Choices:
    return choices_of(QueryParams(query))


def test_filter() -> None:
    """WP-45: the same as the options of the commands."""
    told = choices("state=ready,hold&label=gpu-*&provider=a&pool=a/main&tenant=t1,t2&older_than=15m")
    assert told.filter(["ready", "hold"]) == Filter(
        ["ready", "hold"], ["gpu-*"], ["a"], ["a/main"], ["t1", "t2"], 900.0
    )


def test_empty_fields_choose_nothing() -> None:
    """A form sends all of its fields."""
    assert choices("state=&label=+&q=").given == {}
    assert choices("state=").filter(["ready"]) == Filter([], [], [], [], [], None)


def test_too_many_names() -> None:
    assert len(choices(f"label={'a,' * MAX_NAMES}").filter([]).labels) == MAX_NAMES
    with pytest.raises(PageError, match="label has more than 50 names"):
        choices(f"label={'a,' * (MAX_NAMES + 1)}").filter([])


def test_order() -> None:
    assert choices().order(["id", "age"], "id") == ("id", False)
    assert choices("sort=-age").order(["id", "age"], "id") == ("age", True)
    with pytest.raises(PageError, match="cannot be sorted by 'x'"):
        choices("sort=x").order(["id"], "id")


def test_heads_lead_to_another_order() -> None:
    """WP-45: a second click turns the order, and filters stay."""
    head = choices("state=ready&sort=age&page=3").head(["id", "age"], "id")
    assert head(Column("ID", "id")) == ("?state=ready&sort=id", "")
    assert head(Column("Age", "age")) == ("?state=ready&sort=-age", "ascending")
    assert head(Column("Other", "other")) == (None, "")
    turned = choices("sort=-age").head(["age"], "age")
    assert turned(Column("Age", "age")) == ("?sort=age", "descending")


def test_parts_of_a_list() -> None:
    """WP-45"""
    assert choices().part(0) == Pages(0, 0, 0, None, None)
    assert choices().part(ROWS) == Pages(0, ROWS, ROWS, None, None)
    assert choices("q=a").part(ROWS + 1) == Pages(0, ROWS, ROWS + 1, None, "?q=a&page=2")
    assert choices("page=2&limit=10").part(25) == Pages(10, 20, 25, "?limit=10&page=1", "?limit=10&page=3")
    assert choices("page=3&limit=10").part(25).next is None


def test_part_that_is_not_there_any_more() -> None:
    """The list has become shorter since somebody kept the address."""
    assert choices("page=9&limit=10").part(25) == Pages(20, 25, 25, "?limit=10&page=2", None)
