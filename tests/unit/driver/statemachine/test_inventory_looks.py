# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.inventory`: few instances are asked for one by one (O-8)."""

from __future__ import annotations

import functools

import pytest

from nodepool.driver.statemachine.single_looks import SingleLooks
from nodepool.exceptions import CloudUnavailableException, NotFound
from tests.support.manual_clock import ManualClock
from tests.support.quiet_inventory import QuietInventory
from tests.unit.driver.statemachine.instances import ListedCloud, Seen


class OneByOne(ListedCloud):
    """A cloud without lists of changes, that can be asked for one instance."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: list[str] = []

    def look_at(self, record_id: str) -> Seen:
        self.looked_at.append(record_id)
        if self.error is not None:
            raise self.error
        found = next((record for record in self.records if record.id == record_id), None)
        if found is None:
            raise NotFound(record_id)
        return found


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def one_by_one() -> OneByOne:
    return OneByOne()


@pytest.fixture
def singly(one_by_one: OneByOne, clock: ManualClock) -> QuietInventory[Seen]:
    """Lists all of 20 instances in the beginning."""
    made: QuietInventory[Seen] = QuietInventory("somewhere", one_by_one.fetch, clock=clock)
    made.look_singly(SingleLooks(one_by_one.look_at, 2))
    one_by_one.records = [Seen(str(number)) for number in range(20)]
    made.poll(complete=True)
    clock.now += 1
    one_by_one.asked.clear()
    return made


@pytest.mark.parametrize("names", [["1"], ["1", "2"]])
def test_few_are_looked_at(singly: QuietInventory[Seen], one_by_one: OneByOne, names: list[str]) -> None:
    """O-8: news of few instances need no list of all."""
    woken: list[str] = []
    waiters = [singly.wait_for("boot", functools.partial(woken.append, name), name) for name in names]
    one_by_one.records[1] = Seen("1", "error")
    singly.poll(complete=False)
    assert (sorted(one_by_one.looked_at), one_by_one.asked) == (names, [])
    assert woken == ["1"]
    found = singly.get("1")
    assert found is not None
    assert found.status == "error"
    del waiters


def test_gone_is_proved(singly: QuietInventory[Seen], one_by_one: OneByOne) -> None:
    """CM-7: who is asked for an instance that is gone says so; that is the proof."""
    woken: list[str] = []
    waiter = singly.wait_for("delete", functools.partial(woken.append, "5"), "5")
    one_by_one.records = [record for record in one_by_one.records if record.id != "5"]
    singly.poll(complete=False)
    assert singly.is_gone("5")
    assert singly.get("5") is None
    assert woken == ["5"]
    assert one_by_one.asked == []
    del waiter


def test_newer_list_outweighs_a_look(singly: QuietInventory[Seen], clock: ManualClock) -> None:
    """CM-7: an instance that came back while it was asked for is not taken for gone: nobody would see it again."""

    def look_at(record_id: str) -> Seen:
        clock.now += 1
        singly.refresh(complete=True)
        raise NotFound(record_id)

    singly.look_singly(SingleLooks(look_at, 2))
    waiter = singly.wait_for("boot", lambda: None, "5")
    singly.poll(complete=False)
    assert singly.get("5") == Seen("5")
    assert not singly.is_gone("5")
    del waiter


@pytest.mark.parametrize(
    ("names", "complete"),
    [(["1", "2", "3"], False), (["unseen"], False), (["1", None], False), (["1"], True), ([], False)],
)
def test_all_are_listed(
    singly: QuietInventory[Seen], one_by_one: OneByOne, names: list[str | None], complete: bool
) -> None:
    """Many, one that no list has shown, and who waits for all of them, need a list; so does nobody who is known."""
    waiters = [singly.wait_for("boot", lambda: None, name, complete=complete) for name in names]
    singly.poll(complete=False)
    assert (one_by_one.looked_at, one_by_one.asked) == ([], [None])
    del waiters


def test_error_of_a_look(singly: QuietInventory[Seen], one_by_one: OneByOne, clock: ManualClock) -> None:
    """O-8: as that of a list: nothing is known, and it is tried again later."""
    waiter = singly.wait_for("boot", lambda: None, "1")
    one_by_one.error = CloudUnavailableException("away")
    singly.poll(complete=False)
    assert singly.failures == 1
    assert not singly.is_gone("1")
    assert singly.get("1") is not None
    one_by_one.error = None
    singly.poll(complete=False)
    assert singly.failures == 0
    del waiter
