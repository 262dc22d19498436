# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.inventory`: the list that all launches and deletions share (O-8)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodepool.driver.statemachine import list_pace, metadata
from nodepool.driver.statemachine.inventory import ChangesNotListed, Inventory, no_changes
from nodepool.exceptions import CloudUnavailableException
from tests.support.manual_clock import ManualClock
from tests.support.quiet_inventory import QuietInventory
from tests.support.wait import DEADLINE_SECONDS
from tests.unit.driver.statemachine.instances import ListedCloud, Seen


@pytest.fixture
def cloud() -> ListedCloud:
    return ListedCloud()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def known(cloud: ListedCloud, clock: ManualClock) -> QuietInventory[Seen]:
    return QuietInventory("somewhere", cloud.fetch, cloud.since, clock=clock)


def test_changes_are_asked_for(known: QuietInventory[Seen], cloud: ListedCloud, clock: ManualClock) -> None:
    """After a complete list only what changed, from a little before the latest change."""
    cloud.records = [Seen("a", updated="100"), Seen("b", updated="130")]
    known.refresh(complete=False)
    clock.now += 1
    cloud.records = [Seen("b", "gone", updated="131")]
    known.refresh(complete=False)
    assert cloud.asked == [None, "125"]
    assert (known.get("a"), known.get("b")) == (Seen("a", updated="100"), None)
    assert known.is_gone("b")
    assert not known.is_gone("a")


def test_one_thread_at_a_time_lists_all(clock: ManualClock) -> None:
    """A cloud without lists of changes: who wants a complete list does not make it beside the thread that lists."""
    begun, go_on = threading.Semaphore(0), threading.Event()
    running: list[int] = []
    most = 0

    def fetch(since: str | None) -> Iterable[Seen]:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        begun.release()
        assert go_on.wait(DEADLINE_SECONDS)
        running.pop()
        return [Seen("a")]

    known: QuietInventory[Seen] = QuietInventory("somewhere", fetch, no_changes, clock=clock)
    with ThreadPoolExecutor(2) as threads:
        poll = threads.submit(known.poll, False)
        assert begun.acquire(timeout=DEADLINE_SECONDS)
        clock.now += 1
        found = threads.submit(known.all, 0.0)
        assert not begun.acquire(timeout=0.1)
        go_on.set()
        poll.result(DEADLINE_SECONDS)
        assert found.result(DEADLINE_SECONDS) == [Seen("a")]
    assert most == 1


@pytest.mark.parametrize("updated", ["", "yesterday"])
def test_no_time_to_ask_from(known: QuietInventory[Seen], cloud: ListedCloud, updated: str) -> None:
    """Bad input: records that do not say when they changed, or in a way that nobody can read."""
    cloud.records = [Seen("a", updated=updated)]
    for _ in range(2):
        known.refresh(complete=False)
    assert cloud.asked == [None, None]


def test_cloud_without_changes(cloud: ListedCloud, clock: ManualClock) -> None:
    """A driver that cannot ask for changes lists everything; one complete list proves an absence then."""
    known = QuietInventory[Seen]("somewhere", cloud.fetch, clock=clock)
    cloud.records = [Seen("a", updated="100")]
    for _ in range(2):
        known.refresh(complete=False)
    assert cloud.asked == [None, None]
    assert known.absence_is_certain(clock.now - 1)


def test_lag(cloud: ListedCloud, clock: ManualClock) -> None:
    """A list that began too soon after something happened may not show it yet."""
    known = QuietInventory[Seen]("somewhere", cloud.fetch, lag_seconds=10.0, clock=clock)
    since = clock.now
    clock.now += 9
    known.refresh(complete=True)
    assert not known.absence_is_certain(since)
    clock.now += 2
    known.refresh(complete=True)
    assert known.absence_is_certain(since)


def test_of_node(known: QuietInventory[Seen], cloud: ListedCloud) -> None:
    """D-4: those of a node of this provider; not those of another provider, and not those of nobody."""
    cloud.records = [
        Seen("a", metadata=metadata.for_node("7", "main", "somewhere")),
        Seen("b", metadata=metadata.for_node("8", "main", "somewhere")),
        Seen("c", metadata=metadata.for_node("7", "main", "elsewhere")),
        Seen("d"),
    ]
    known.refresh(complete=True)
    assert [found.id for found in known.of_node("7")] == ["a"]


def test_absence_from_a_complete_list(known: QuietInventory[Seen], cloud: ListedCloud, clock: ManualClock) -> None:
    """An instance that a complete list lacks is not shown, but that does not prove that it is gone."""
    cloud.records = [Seen("a")]
    known.refresh(complete=True)
    clock.now += 1
    cloud.records = []
    known.refresh(complete=True)
    assert known.get("a") is None
    assert not known.is_gone("a")


def test_absence_is_certain(known: QuietInventory[Seen], cloud: ListedCloud, clock: ManualClock) -> None:
    """After a complete list and one of changes; after two complete ones where somebody needs just these."""
    cloud.records = [Seen("a")]
    known.refresh(complete=True)
    for lists in ((True, False), (True, True)):
        since = clock.now = clock.now + 1
        assert not known.absence_is_certain(since)
        for complete in lists:
            assert not known.absence_is_certain(since)
            clock.now += 1
            known.refresh(complete)
        assert known.absence_is_certain(since)


def test_an_overtaken_list_changes_nothing(known: QuietInventory[Seen], cloud: ListedCloud, clock: ManualClock) -> None:
    """A slow complete list that began before a newer one must not hide or revive what that one showed."""
    clock.now = 100
    known._take([Seen("new", "running")], started=50, complete=False)
    known._take([Seen("new", "building"), Seen("old")], started=40, complete=True)
    assert known.get("new") == Seen("new", "running")
    assert known.get("old") == Seen("old")


def test_what_is_gone_stays_gone(known: QuietInventory[Seen], cloud: ListedCloud) -> None:
    """Lists of an eventually consistent cloud show it for a while."""
    known.set_gone("a")
    cloud.records = [Seen("a")]
    known.refresh(complete=True)
    assert known.get("a") is None


def test_changes_are_refused(known: QuietInventory[Seen], cloud: ListedCloud, clock: ManualClock) -> None:
    """A cloud that refuses changes-since is asked for everything from then on."""
    cloud.records = [Seen("a", updated="100")]
    known.refresh(complete=True)

    def fetch(since: str | None) -> Iterable[Seen]:
        cloud.asked.append(since)
        if since:
            raise ChangesNotListed("bad request")
        return [Seen("a"), Seen("b")]

    known._fetch = fetch
    clock.now += 1
    known.refresh(complete=False)
    known.refresh(complete=False)
    assert cloud.asked == [None, "95", None, None]
    assert known.get("b") is not None


def test_wakes_whom_it_concerns(known: QuietInventory[Seen], cloud: ListedCloud, clock: ManualClock) -> None:
    """300 launches are not all looked at because one of them goes on."""
    woken: list[str] = []
    # Waiters that nobody holds are forgotten.
    held = [known.wait_for("boot", functools.partial(woken.append, name), name) for name in ("a", "b", "c")]
    anything = known.wait_for("search", lambda: woken.append("any"))
    cloud.records = [Seen("a", "building"), Seen("b", "building")]
    known.refresh(complete=True)
    assert sorted(woken) == ["a", "any", "b"]
    woken.clear()
    cloud.records = [Seen("a", "building"), Seen("b", "running")]
    clock.now += 1
    known.refresh(complete=True)
    known.done(anything)
    assert sorted(woken) == ["any", "b"]
    assert len(held) == 3


def test_errors(
    known: QuietInventory[Seen], cloud: ListedCloud, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A cloud that is away is asked less and less often; what was known stays."""
    cloud.records = [Seen("a")]
    known.refresh(complete=True)
    waiter = known.wait_for("boot", lambda: None)
    cloud.error = CloudUnavailableException("no answer")
    pauses = []
    for _ in range(6):
        known.touch(waiter)
        known.poll(complete=False)
        pauses.append(known._pause())
        clock.now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 15, 15]
    assert known.get("a") == Seen("a")
    assert "no answer; listed again in 1 s" in caplog.text
    cloud.error = None
    known.poll(complete=False)
    assert known._pause() <= list_pace.LONGEST_PAUSE_SECONDS


def test_library_that_wants_to_end_the_process(
    known: QuietInventory[Seen], cloud: ListedCloud, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread goes on, as after every error."""
    waiter = known.wait_for("boot", lambda: None)
    cloud.error = SystemExit()
    known.poll(complete=False)
    assert known.failures == 1
    assert "SystemExit(); listed again in 1 s" in caplog.text
    known.done(waiter)


def test_quiet_while_nobody_waits(known: QuietInventory[Seen], clock: ManualClock) -> None:
    """The first waiter is listed for at once, the last one leaves no lists behind."""
    assert known._pause() == float("inf")
    waiter = known.wait_for("boot", lambda: None)
    assert known._pause() <= 0
    known.poll(complete=False)
    assert known._pause() == pytest.approx(list_pace.SHORTEST_PAUSE_SECONDS)
    known.done(waiter)
    assert known._pause() == float("inf")


def test_forgotten_waiter(known: QuietInventory[Seen], clock: ManualClock) -> None:
    """A launch that nobody drives any more does not keep the list going."""
    waiter = known.wait_for("boot", lambda: None)
    clock.now += list_pace.FORGOTTEN_SECONDS + 1
    assert known._pause() == float("inf")
    known.touch(waiter)
    assert known._pause() <= 0


def test_thread(cloud: ListedCloud) -> None:
    """It begins with the first waiter, lists while somebody waits, and ends."""
    known = Inventory[Seen]("somewhere", cloud.fetch)
    assert known._thread is None
    seen = threading.Event()
    cloud.records = [Seen("a")]
    waiter = known.wait_for("boot", seen.set)
    assert seen.wait(30)
    assert known.get("a") == Seen("a")
    known.done(waiter)
    known.stop()
    known.join()
    known.wait_for("boot", seen.set)
    known.join()


def test_all(known: QuietInventory[Seen], cloud: ListedCloud, clock: ManualClock) -> None:
    """A list of some age may do, if the caller says so."""
    known.all(max_age=0)
    known.all(max_age=5)
    assert len(cloud.asked) == 1
    clock.now += 6
    cloud.records = [Seen("a")]
    assert known.all(max_age=5) == [Seen("a")]
    cloud.error = CloudUnavailableException("no answer")
    clock.now += 6
    with pytest.raises(CloudUnavailableException):
        known.all(max_age=5)


def test_one_list_for_all_who_ask(clock: ManualClock) -> None:
    """Leaks, quota and the search for an instance ask at the same time: what began before they asked does not do."""
    begun, go = threading.Semaphore(0), threading.Event()
    lists: list[str | None] = []

    def fetch(since: str | None) -> list[Seen]:
        lists.append(since)
        begun.release()
        assert go.wait(DEADLINE_SECONDS)
        return [Seen("a")]

    inventory = QuietInventory("somewhere", fetch, clock=clock)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(inventory.all, 0.0)
        assert begun.acquire(timeout=DEADLINE_SECONDS)
        clock.now += 1
        others = [pool.submit(inventory.all, 0.0) for _ in range(3)]
        go.set()
        assert all(answer.result(DEADLINE_SECONDS) == [Seen("a")] for answer in (first, *others))
    assert lists == [None, None]


def test_error_of_a_list_is_told(cloud: ListedCloud, clock: ManualClock) -> None:
    """The next one who asks has it tried again."""
    inventory = QuietInventory("somewhere", cloud.fetch, clock=clock)
    cloud.error = CloudUnavailableException("503")
    with pytest.raises(CloudUnavailableException):
        inventory.all(0.0)
    cloud.error = None
    cloud.records = [Seen("a")]
    assert inventory.all(0.0) == [Seen("a")]
