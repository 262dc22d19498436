# SPDX-License-Identifier: Apache-2.0
"""When the next list of a cloud is worth its price."""

from __future__ import annotations

import pytest

from nodepool.driver.statemachine import inventory

NOW, PRICE, NEVER = 1000.0, inventory.PRICE_SECONDS, float("inf")
SHORTEST, SHARED = inventory.SHORTEST_PAUSE_SECONDS, inventory.SHORTEST_PAUSE_SECONDS * inventory.SHORTEST_PART
SOON = max(PRICE / 2, inventory.PAID_PAUSE_SECONDS)


def waiter(kind: str = "boot", since: float = NOW, record_id: str | None = None) -> inventory.Waiter:
    return inventory.Waiter(kind, lambda: None, since, record_id, False)


class Pace(inventory.ListPace):
    """With some that wait, each for so many seconds, after so many waits that ended well."""

    def __init__(self, *waited: float, ended: int = 0, seconds: float = 0.1) -> None:
        super().__init__()
        self.end(ended, seconds)
        self.kept = [waiter(since=NOW - seconds) for seconds in waited]
        for one in self.kept:
            one.touched = NOW
            self.add(one)

    def end(self, count: int, seconds: float = 0.1, *, happened: bool = True) -> None:
        for _ in range(count):
            self.done(waiter(since=NOW - seconds), NOW, happened=happened)

    def pause(self, took: float = 0.0, now: float = NOW) -> float:
        """Seconds until the next list, after one that was begun ``took`` seconds ago."""
        self.listed()
        self.worked(now, took)
        return self.next_list(now, listed_at=now - took) - now


@pytest.mark.parametrize(
    ("pace", "shortest", "took", "expected"),
    [
        (Pace(0), None, 0, 0.25),
        (Pace(1), None, 0, 0.25),
        (Pace(20), None, 0, 2.0),
        (Pace(0, ended=1, seconds=2.0), None, 0, 1.4),
        (Pace(300), None, 0, 3.0),
        (Pace(0), None, 4, 4.0),
        (Pace(1), 0.5, 0, 0.5),
        (Pace(1), 0.5, 0.2, 0.3),
        (Pace(*[1] * 1000), 0.5, 0, 0.5),
        (Pace(*[0] * 300), None, 0, SHARED),
        (Pace(*[5] * 30, ended=1000), None, 0, inventory.PAID_PAUSE_SECONDS),
        (Pace(*[5] * 30, ended=1000), None, 0.04, 0.04),
        (Pace(*[1] * 300, ended=1000), None, 0, SHARED),
        (Pace(0.1, 0.1, ended=1000), None, 0, SOON),
    ],
)
def test_pauses(pace: Pace, shortest: float | None, took: float, expected: float) -> None:
    """Prompt at first, or when an end can be expected; slower for what takes long; many share the price of a list.

    Waits that ended pay for some.
    A list that takes long has as long a pause behind it; ``shortest`` is that of a cloud whose answers are large.
    """
    if shortest is not None:
        pace.shortest_seconds = shortest
    assert pace.pause(took) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([], NEVER),
        ([NOW], NOW + PRICE),
        ([NOW] * 5, NOW + PRICE / 5),
        ([NOW, NOW + 50], NOW + PRICE),
        ([NOW + 0.4 * PRICE, NOW], NOW + 0.7 * PRICE),
        ([NOW, NOW, NOW + 0.3 * PRICE, NOW + 1], NOW + 0.3 * PRICE + 0.4 * PRICE / 3),
    ],
)
def test_worth_a_list(ends: list[float], expected: float) -> None:
    """What all lose together counts, from when on each may have ended."""
    assert inventory.worth_a_list(ends, PRICE) == pytest.approx(expected, rel=1e-9)


def test_whom_a_list_concerns() -> None:
    """300 launches are not all looked at because one of them goes on; who was woken waits for nothing until it says so.

    Nothing is kept of what waits no more.
    """
    pace = Pace(ended=1000)
    one, other, search = waiter(record_id="a"), waiter(record_id="b"), waiter("search")
    for each in (one, other, search):
        pace.add(each)
    assert set(pace.to_wake({"a"})) == {one, search}
    assert not pace.complete_wanted()
    other.complete = True
    pace.add(other)
    assert set(pace.to_wake(())) == {other, search}
    assert sorted(each.kind for each in pace.to_wake({"b"})) == ["boot", "search"], "each of them once"
    assert pace.complete_wanted()
    assert pace.pause() == pytest.approx(SHORTEST)
    for each in (one, other, search):
        each.told = False
        pace.done(each, NOW, happened=False)
    assert not pace.to_wake({"a", "b"})
    pace.add(kept := waiter(record_id="kept"))
    for number in range(10):
        pace.add(waiter(record_id=str(number)))
    pace.next_list(NOW, NOW)
    assert pace.to_wake({"0", "kept"}) == [kept]
    assert pace.next_list(NOW + inventory.FORGOTTEN_SECONDS + 1, NOW) == NEVER, "nothing drives it any more"
    assert not pace.has(kept)
