# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.single_looks`."""

from __future__ import annotations

import pytest

from nodepool.driver.statemachine.single_looks import SINGLY_OF, Looked, SingleLooks
from nodepool.exceptions import CloudUnavailableException, NotFound

THERE = {"a": 1, "b": 2}
MANY = [*THERE, *map(str, range(2 * SINGLY_OF - len(THERE)))]


def look_at(record_id: str) -> int:
    if record_id == "away":
        raise CloudUnavailableException("away")
    if record_id not in THERE:
        raise NotFound(record_id)
    return THERE[record_id]


@pytest.mark.parametrize(
    ("awaited", "known", "chosen"),
    [
        ({"a"}, ["a"], {"a"}),
        ({"a", "b"}, MANY, {"a", "b"}),
        # A short list costs less than two answers.
        ({"a", "b"}, MANY[:-1], set()),
        ({"a", "b", "0"}, [*MANY, *map(str, range(100, 200))], set()),
        ({"unseen"}, MANY, set()),
        ({"a", "unseen"}, MANY, set()),
        (set(), MANY, set()),
        (None, MANY, set()),
    ],
)
def test_choose(awaited: set[str] | None, known: list[str], chosen: set[str]) -> None:
    """O-8: few that are known."""
    assert SingleLooks(look_at, 2).choose(awaited, known) == chosen


def test_never() -> None:
    assert SingleLooks(look_at, 0).choose({"a"}, MANY) == set()


def test_look() -> None:
    """CM-7: what is not found is gone; an error says nothing of any of them."""
    assert SingleLooks(look_at, 2).look(["a", "x"]) == Looked([1], ["x"])
    with pytest.raises(CloudUnavailableException):
        SingleLooks(look_at, 2).look(["a", "away"])
