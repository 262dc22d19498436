# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.inventory`."""

from __future__ import annotations

import pytest

from nodepool.driver.statemachine import inventory
from nodepool.driver.statemachine.inventory import ListPace, Waiter, worth_a_list

PRICE = inventory.PRICE_SECONDS
NOW = 1000.0


def waiter(kind: str = "boot", since: float = NOW, record_id: str | None = None, complete: bool = False) -> Waiter:
    return Waiter(kind, lambda: None, since, record_id, complete)


def pause(pace: ListPace, now: float, took: float = 0.0) -> float:
    """Seconds until the next list, after one that was begun ``took`` seconds ago."""
    pace.listed()
    pace.worked(now, took)
    return pace.next_list(now, listed_at=now - took) - now


def test_nobody_waits() -> None:
    pace = ListPace()
    assert pace.next_list(NOW, float("-inf")) == float("inf")
    first = waiter()
    pace.add(first)
    assert pace.next_list(NOW, float("-inf")) <= NOW
    pace.done(first, NOW, happened=True)
    assert pace.next_list(NOW, NOW) == float("inf")


def test_waits_that_end_before_the_first_list() -> None:
    """Deletions of what is gone already end at once: they pay for a list while none was answered yet."""
    pace = ListPace()
    for _ in range(10):
        pace.done(waiter("delete"), NOW, happened=True)
    last = waiter("delete")
    pace.add(last)
    assert pace.next_for(last, NOW, float("-inf")) <= NOW
    assert pace.next_list(NOW, float("-inf")) <= NOW


@pytest.mark.parametrize(("waited", "expected"), [(0, 0.25), (1, 0.25), (20, 2.0), (300, 3.0)])
def test_the_longer_the_slower(waited: float, expected: float) -> None:
    """Prompt at first, slower for what takes long."""
    pace = ListPace()
    long = waiter(since=NOW - waited)
    long.touched = NOW
    pace.add(long)
    assert pause(pace, NOW) == pytest.approx(expected)


@pytest.mark.parametrize("count", [1, 1000])
def test_shortest_pause_of_a_cloud(count: int) -> None:
    """However many wait: answers of the cloud are large."""
    pace = ListPace()
    pace.shortest_seconds = 0.5
    kept = [waiter(since=NOW - 1) for _ in range(count)]
    for one in kept:
        pace.add(one)
    assert pause(pace, NOW) == pytest.approx(0.5)
    assert pause(pace, NOW, took=0.2) == pytest.approx(0.3)


def test_slow_lists() -> None:
    """An API that takes 4 s for a list has as much time for itself before the next."""
    pace = ListPace()
    kept = waiter()
    pace.add(kept)
    assert pause(pace, NOW, took=4) == pytest.approx(4)


def test_many_waiters() -> None:
    """Many share the cost of a list: the more wait, the sooner the next one; and so for the last of them."""
    pace = ListPace()
    waiters = [waiter() for _ in range(300)]
    for one in waiters:
        pace.add(one)
    shortest = inventory.SHORTEST_PAUSE_SECONDS * inventory.SHORTEST_PART
    assert pause(pace, NOW) == pytest.approx(shortest)
    for one in waiters[1:]:
        pace.done(one, NOW, happened=False)
    assert pause(pace, NOW) == pytest.approx(shortest)
    pauses = [pause(pace, NOW) for _ in range(60)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(inventory.SHORTEST_PAUSE_SECONDS)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([], float("inf")),
        ([NOW], NOW + PRICE),
        ([NOW] * 5, NOW + PRICE / 5),
        ([NOW, NOW + 50], NOW + PRICE),
        ([NOW + 0.4 * PRICE, NOW], NOW + 0.7 * PRICE),
        ([NOW, NOW, NOW + 0.3 * PRICE, NOW + 1], NOW + 0.3 * PRICE + 0.4 * PRICE / 3),
    ],
)
def test_worth_a_list(ends: list[float], expected: float) -> None:
    """What all lose together counts, from when on there can be news of each."""
    assert worth_a_list(ends, PRICE) == pytest.approx(expected, rel=1e-9)


def paid_pace(waits: int = 1000, seconds: float = 0.1) -> ListPace:
    """After so many waits that ended with news."""
    pace = ListPace()
    for _ in range(waits):
        pace.done(waiter(since=NOW - seconds), NOW, happened=True)
    return pace


def test_waits_that_ended_pay_for_lists() -> None:
    """The sooner, the more can be expected to have ended; as soon as nothing is paid for, as before."""
    pace = paid_pace()
    kept = [waiter(since=NOW - 0.1) for _ in range(2)]
    for each in kept:
        pace.add(each)
    soon = max(PRICE / 2, inventory.PAID_PAUSE_SECONDS)
    assert pause(pace, NOW) == pytest.approx(soon)
    new = waiter(since=NOW)
    pace.add(new)
    assert pace.next_for(new, NOW, NOW) == pytest.approx(NOW + soon)
    pauses = [pause(pace, NOW) for _ in range(20)]
    assert sum(each < inventory.SHORTEST_PAUSE_SECONDS for each in pauses) < inventory.PAID_LISTS
    assert pauses[-1] == pytest.approx(inventory.SHORTEST_PAUSE_SECONDS)
    for _ in range(40):
        pace.done(waiter(since=NOW - 0.1), NOW, happened=True)
    assert pause(pace, NOW) == pytest.approx(inventory.SHORTEST_PAUSE_SECONDS), "what is owed comes first"


def test_a_list_that_is_paid_for_is_no_burden() -> None:
    """At most half of the time is spent in lists, and an error counts for them, too."""
    pace = paid_pace()
    kept = [waiter(since=NOW - 5) for _ in range(30)]
    for each in kept:
        pace.add(each)
    assert pause(pace, NOW) == pytest.approx(inventory.PAID_PAUSE_SECONDS)
    assert pause(pace, NOW, took=0.04) == pytest.approx(0.04)
    seconds = pace.failed(NOW)
    assert pace.next_list(NOW, NOW) == pytest.approx(NOW + seconds)


def test_who_was_told_waits_for_nothing() -> None:
    """What was woken is no reason for another list, until it says that it still waits."""
    pace, kept = paid_pace(), waiter(since=NOW - 1, record_id="a")
    pace.add(kept)
    assert pace.to_wake({"a"}) == [kept]
    assert pause(pace, NOW) == pytest.approx(inventory.SHORTEST_PAUSE_SECONDS)
    kept.told = False
    assert pause(pace, NOW) == pytest.approx(max(PRICE, inventory.PAID_PAUSE_SECONDS))


def test_lists_of_many_are_not_paid_for() -> None:
    """They are long, and there are many who share them."""
    pace = paid_pace()
    waiters = [waiter(since=NOW - 1) for _ in range(300)]
    for one in waiters:
        pace.add(one)
    shortest = inventory.SHORTEST_PAUSE_SECONDS * inventory.SHORTEST_PART
    assert pause(pace, NOW) == pytest.approx(shortest)


def test_learns_how_long_it_takes() -> None:
    """A cloud that needs 20 s for an instance is not asked every moment from the first second on; each kind counts."""
    pace = ListPace()
    pace.done(waiter(since=NOW - 20), NOW, happened=True)
    kept = waiter()
    pace.add(kept)
    for seconds in (0, 3, 6, 9):
        # It may be quicker than it was.
        assert pause(pace, NOW + seconds) == pytest.approx(inventory.LONGEST_PAUSE_SECONDS)
    assert pause(pace, NOW + 12) == pytest.approx(2), "70% of 20 s are over then"
    other = waiter("delete", since=NOW + 12)
    pace.add(other)
    assert pause(pace, NOW + 12) == pytest.approx(inventory.SHORTEST_PAUSE_SECONDS)


def test_a_wait_that_was_given_up_teaches_nothing() -> None:
    pace = ListPace()
    pace.done(waiter(since=NOW - 20), NOW, happened=False)
    kept = waiter()
    pace.add(kept)
    assert pause(pace, NOW) == pytest.approx(inventory.SHORTEST_PAUSE_SECONDS)


def test_errors() -> None:
    """A cloud that is away is asked less and less often, until it answers."""
    pace, now, pauses = ListPace(), NOW, []
    for _ in range(6):
        pauses.append(pace.failed(now))
        now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 15, 15]
    kept = waiter(since=now)
    pace.add(kept)
    pace.failed(now)
    assert pace.next_for(kept, now, float("-inf")) == now + 15
    assert pause(pace, now) == pytest.approx(inventory.SHORTEST_PAUSE_SECONDS)


def test_forgotten() -> None:
    """A launch that nobody drives any more does not keep the lists going."""
    pace, kept = ListPace(), waiter()
    pace.add(kept)
    assert pace.next_list(NOW + inventory.FORGOTTEN_SECONDS + 1, NOW) == float("inf")
    assert not pace.has(kept)


def test_whom_a_list_concerns() -> None:
    """300 launches are not all looked at because one of them goes on."""
    pace = ListPace()
    one, other, search = waiter(record_id="a"), waiter(record_id="b"), waiter("search")
    for each in (one, other, search):
        pace.add(each)
    assert set(pace.to_wake({"a"})) == {one, search}
    assert not pace.complete_wanted()
    other.complete = True
    pace.add(other)
    assert set(pace.to_wake(())) == {other, search}
    assert sorted(each.kind for each in pace.to_wake({"b"})) == sorted([other.kind, search.kind]), "each of them once"
    assert pace.complete_wanted()
    for each in (one, other, search):
        pace.done(each, NOW, happened=False)
    assert not pace.to_wake({"a", "b"})


def test_waiters_that_nobody_holds() -> None:
    """Nothing is kept of them: the ids of their instances do not come again."""
    pace, kept = ListPace(), waiter(record_id="kept")
    pace.add(kept)
    for number in range(10):
        pace.add(waiter(record_id=str(number)))
    pace.next_list(NOW, NOW)
    assert list(pace._by_record) == ["kept"]
    assert pace.to_wake({"0", "kept"}) == [kept]
