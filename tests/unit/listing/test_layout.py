# SPDX-License-Identifier: Apache-2.0
"""nodepool.listing.terminal: which columns stay on a terminal, and how wide they are."""

from __future__ import annotations

import pytest

from nodepool.listing.table import Column
from nodepool.listing.terminal import cut, fit


def columns(*priorities: int, least: int = 16) -> list[Column]:
    return [Column("C", "c", priority=priority, least=least) for priority in priorities]


@pytest.mark.parametrize(
    ("priorities", "natural", "room", "widths"),
    [
        ([0, 0], [10, 50], None, {0: 10, 1: 50}),
        ([0, 0], [10, 10], 22, {0: 10, 1: 10}),
        ([0, 0], [10, 50], 40, {0: 10, 1: 28}),  # the long one is cut
        ([0, 1, 2], [10, 10, 10], 25, {0: 10, 1: 10}),  # the highest goes first
        ([0, 1, 1], [10, 10, 10], 25, {0: 10, 1: 10}),  # of equals the last
        ([0, 1], [10, 100], 28, {0: 10, 1: 16}),  # cut before it goes
        ([0, 1], [10, 100], 27, {0: 10}),
        ([0, 0], [20, 20], 20, {0: 9, 1: 9}),  # those that stay are cut without mercy
        ([0, 0], [20, 20], 3, {0: 4, 1: 4}),
        ([], [], 10, {}),
    ],
)
def test_fit(priorities: list[int], natural: list[int], room: int | None, widths: dict[int, int]) -> None:
    assert fit(columns(*priorities), natural, room) == widths


def test_a_column_that_needs_more_room() -> None:
    assert fit([Column("A", "a", priority=1), Column("B", "b", least=30)], [10, 40], 35) == {1: 35}


@pytest.mark.parametrize(
    ("text", "width", "result"),
    [("abc", 5, "abc  "), ("abc", 3, "abc"), ("abcdef", 4, "abc…"), ("日本語", 4, "日… ")],
)
def test_cut(text: str, width: int, result: str) -> None:
    assert cut(text, width, lambda text: sum(1 + (char > "\u2e80") for char in text)) == result
