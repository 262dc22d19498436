# SPDX-License-Identifier: Apache-2.0
"""A list in parts."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.listing.paging import MAX_CURSOR, BadCursor, Order, part_of

#: (value, identity)
Record = tuple[Any, str]


def order(*, descending: bool = False) -> Order[Record]:
    return Order(lambda record: record[0], lambda record: record[1], descending)


def all_parts(records: list[Record], by: Order[Record], limit: int) -> list[Record]:
    """Everything, part after part."""
    found: list[Record] = []
    cursor = None
    while True:
        part = part_of(records, by, limit, cursor)
        assert len(part.records) <= limit
        found += part.records
        cursor = part.cursor
        if cursor is None:
            return found
        assert len(cursor) <= MAX_CURSOR
        assert len(part.records) == limit


VALUES = st.one_of(
    st.none(), st.integers(-3, 3), st.floats(-1, 1), st.text(max_size=300), st.lists(st.text(max_size=2))
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=20), st.integers(1, 7), st.booleans())
def test_parts_are_the_whole(values: dict[str, Any], limit: int, descending: bool) -> None:
    """WP-21, WP-23: each record once, in order; those without a value last."""
    records = [(value, identity) for identity, value in values.items()]
    by = order(descending=descending)
    found = all_parts(records, by, limit)
    assert found == part_of(records, by, len(records) + 1, None).records
    assert sorted(map(repr, found)) == sorted(map(repr, records))
    empty = [record[0] is None for record in found]
    assert empty == sorted(empty)
    ranks = [by.rank(record) for record in found if record[0] is not None]
    assert ranks == sorted(ranks, reverse=descending)
    for rank in set(map(by.rank, found)):
        same = [record[1] for record in found if by.rank(record) == rank]
        assert same == sorted(same)


def test_what_comes_and_goes() -> None:
    """WP-21: the record before the cursor may be gone."""
    records: list[Record] = [(number, str(number)) for number in range(6)]
    first = part_of(records, order(), 2, None)
    rest = [record for record in records if record not in first.records]
    assert part_of([(-1, "new"), *rest], order(), 9, first.cursor).records == rest
    assert part_of([], order(), 9, first.cursor).records == []


def test_the_last_part() -> None:
    records: list[Record] = [(1, "a"), (1, "b")]
    assert part_of(records, order(), 2, None).cursor is None
    assert part_of([], order(), 2, None).cursor is None


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "x", "=", "ä", "A" * (MAX_CURSOR + 1), "[]", encoded([]), encoded([1, 2, 3, 4, 5]), encoded({"a": 1})),
        *(encoded([False, False, "1", "", ""]), encoded("[" * 3000), base64.b64encode(b"\xff\xfe").decode()),
    ],
)
def test_bad_cursors(cursor: str) -> None:
    with pytest.raises(BadCursor):
        part_of([], order(), 1, cursor)
