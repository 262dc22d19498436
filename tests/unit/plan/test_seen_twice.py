# SPDX-License-Identifier: Apache-2.0
"""What counts only when two looks in a row show it."""

from __future__ import annotations

from nodepool.plan.retries import SeenTwice


def test_two_looks_in_a_row() -> None:
    """A look in between that does not show it begins anew."""
    seen: SeenTwice[str] = SeenTwice()
    assert seen.look(["a", "b"]) == set()
    assert seen.look(["b", "c"]) == {"b"}
    assert seen.look(["a", "b", "c"]) == {"b", "c"}
    assert seen.look([]) == set()
    assert seen.look(["a"]) == set()


def test_something_new() -> None:
    """Then another look, soon, is worth while."""
    seen: SeenTwice[str] = SeenTwice()
    assert not seen.new
    news = []
    for found in (["a"], ["a"], ["a", "b"], ["b"], [], ["b"]):
        seen.look(found)
        news.append(seen.new)
    assert news == [True, False, True, False, False, True]


def test_seconds_since_the_first_look() -> None:
    """A gap begins anew; what was never seen is new."""
    seen: SeenTwice[str] = SeenTwice()
    assert seen.seen_for("a", 10.0) == 0
    for found, now in ((["a", "b"], 10.0), (["a"], 12.0), (["a", "b"], 15.0)):
        seen.look(found, now)
    assert [seen.seen_for(key, 16.0) for key in "ab"] == [6.0, 1.0]


def test_looks_that_are_too_close() -> None:
    """The first of them must be long enough ago, however many there were since."""
    seen: SeenTwice[tuple[str, int]] = SeenTwice(apart_seconds=2.0)
    assert [seen.look([("a", 1)], now) for now in (10.0, 11.0, 11.9)] == [set()] * 3
    assert seen.look([("a", 1), ("b", 1)], 12.0) == {("a", 1)}
    assert seen.look([("a", 2), ("b", 1)], 13.0) == set()
    assert seen.look([("a", 2), ("b", 1)], 14.5) == {("b", 1)}
