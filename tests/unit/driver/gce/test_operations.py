# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.instances`, without a cloud."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudNotFound, CloudSetup
from nodepool.driver.gce.instances import (
    AWAY,
    MISSING_SECONDS,
    MOST_ASKED,
    MOST_LISTED,
    PAUSE_SECONDS,
    InsertOperations,
)
from nodepool.driver.gce.types import Operation
from tests.support.manual_clock import ManualClock

STOCKOUT: dict[str, Any] = {"error": {"errors": [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "none left"}]}}


def operation(name: str = "op-1", status: str = "PENDING", **more: Any) -> Operation:
    return Operation.of({"name": name, "zone": "x/zones/a", "targetLink": "x/np1", "status": status, **more})


class Calls:
    """Lists what the test wrote, and counts the entries that were read; zone ``b`` lists nothing, or fails."""

    def __init__(self) -> None:
        self.listed: list[Operation] | Exception = []
        self.of_b: list[Operation] | Exception = []
        self.zones: list[str] = []
        self.itself: Operation | Exception = CloudNotFound("there is none")
        self.read = 0
        self.lists = 0
        self.asked = 0

    def operations(self, zone: str, kind: str, what: str) -> Iterator[Operation]:
        assert kind == "insert"
        self.lists += 1
        self.zones.append(zone)
        listed = self.of_b if zone == "b" else self.listed
        if isinstance(listed, Exception):
            raise listed
        for found in listed:
            self.read += 1
            yield found

    def operation(self, zone: str, name: str) -> Operation:
        self.asked += 1
        if isinstance(self.itself, Exception):
            raise self.itself
        return self.itself


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.calls = Calls()
        self.operations = InsertOperations("north", self.calls, self.clock)
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def look(self, seconds: float = PAUSE_SECONDS) -> None:
        self.clock.now += seconds
        self.operations.look()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_read_to_the_end(rig: Rig) -> None:
    """GC-5 (not repeated): the launch hears of the end, and why."""
    insert = rig.operations.watch(operation(), "head", rig.wake)
    rig.calls.listed = [operation(status="RUNNING")]
    rig.look()
    assert (insert.done, rig.woken) == (False, 0)
    rig.calls.listed = [operation("op-1", "DONE", **STOCKOUT)]
    rig.look()
    assert (insert.done, rig.woken) == (True, 1)
    assert isinstance(insert.failure, CloudNoCapacity)
    rig.look()
    assert rig.calls.lists == 2, "nobody waits any more"


def test_over_at_once(rig: Rig) -> None:
    insert = rig.operations.watch(operation(status="DONE"), "head", rig.wake)
    assert (insert.done, insert.failure) == (True, None)
    rig.look()
    assert rig.calls.lists == 0


def test_one_list_for_all(rig: Rig) -> None:
    """The newest come first: what is behind those that are looked for is not read."""
    inserts = [rig.operations.watch(operation(f"op-{number}"), "head", rig.wake) for number in range(3)]
    rig.calls.listed = [operation(f"op-{number}", "DONE") for number in (2, 1, 0, 7, 8)]
    rig.look()
    assert (rig.calls.lists, rig.calls.read, rig.woken) == (1, 3, 3)
    assert all(insert.done for insert in inserts)


def test_not_too_often(rig: Rig) -> None:
    insert = rig.operations.watch(operation(), "head", rig.wake)
    rig.look()
    rig.look(PAUSE_SECONDS / 4)
    assert (rig.calls.lists, insert.done) == (1, False)


def test_abandoned_launch(rig: Rig) -> None:
    """Nobody asks for it any more."""
    rig.operations.watch(operation(), "head", rig.wake)
    rig.look()
    assert rig.calls.lists == 0


def test_missing_in_lists(rig: Rig) -> None:
    """After a while it is asked for itself."""
    insert = rig.operations.watch(operation(), "head", rig.wake)
    rig.look()
    assert rig.calls.asked == 0
    rig.calls.itself = operation(status="RUNNING")
    rig.look(MISSING_SECONDS)
    rig.look()
    assert (rig.calls.asked, insert.done) == (1, False)
    rig.calls.itself = CloudNotFound("there is none")
    rig.look(MISSING_SECONDS)
    assert (insert.done, insert.failure) == (True, None), "the instance itself says how it ended"


def test_zone_that_does_not_answer(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """GC-5: lists of instances wait for each attempt. So it is left alone, longer each time, and the others are not."""
    missing = rig.operations.watch(operation(), "head", rig.wake)
    other = rig.operations.watch(operation("op-2", zone="x/zones/b"), "head", rig.wake)
    rig.calls.of_b = [operation("op-2", "RUNNING", zone="x/zones/b")]
    rig.calls.listed = rig.calls.itself = CloudAway("no answer")
    rig.look(MISSING_SECONDS)
    for _ in range(10):
        rig.look()
    assert (rig.calls.zones.count("a"), rig.calls.zones.count("b"), rig.calls.asked) == (1, 11, 1)
    rig.look(AWAY.first_seconds - 10)
    assert rig.calls.zones.count("a") == 2
    rig.look(AWAY.first_seconds)
    assert (rig.calls.zones.count("a"), rig.calls.asked) == (2, 2)
    assert caplog.text.count("are not known") == 1
    rig.calls.listed = [operation("op-1", "DONE")]
    rig.look(AWAY.first_seconds)
    assert (missing.done, other.done) == (True, False)


def test_trouble(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once; lists of instances go on."""
    insert = rig.operations.watch(operation(), "head", rig.wake)
    rig.calls.listed = CloudAway("no answer")
    with caplog.at_level(logging.WARNING):
        rig.look()
        rig.look()
    assert [record.getMessage() for record in caplog.records] == [
        "Provider north: the ends of creations in a are not known: no answer"
    ]
    assert not insert.done


def test_each_zone_has_its_list(rig: Rig) -> None:
    """The newest come first in the list of a zone only; a zone without creations is not asked, and a zone that does not
    answer keeps nobody waiting who is in another one.
    """
    first = rig.operations.watch(operation(), "head", rig.wake)
    other = rig.operations.watch(operation("op-2", zone="x/zones/b"), "head", rig.wake)
    rig.calls.listed = [operation("op-1", "DONE"), operation("op-0", "DONE")]
    rig.calls.of_b = CloudAway("no answer")
    rig.look()
    assert (rig.calls.zones, rig.calls.read) == (["a", "b"], 1)
    assert (first.done, other.done) == (True, False)
    rig.look(AWAY.first_seconds)
    assert rig.calls.zones == ["a", "b", "b"]


def test_history_is_not_read(rig: Rig) -> None:
    """Of one that is missing in the list: two pages, and not all that were ever made."""
    insert = rig.operations.watch(operation(), "head", rig.wake)
    rig.calls.listed = [operation("op-0", "DONE")] * (2 * MOST_LISTED)
    rig.look()
    assert (rig.calls.read, insert.done) == (MOST_LISTED, False)


@pytest.mark.parametrize("error", [CloudSetup("not allowed"), CloudAway("no answer")])
def test_lists_are_refused(rig: Rig, error: Exception) -> None:
    """After a while each operation is asked for itself, a few at once."""
    inserts = [rig.operations.watch(operation(f"op-{number}"), "head", rig.wake) for number in range(MOST_ASKED + 1)]
    rig.calls.listed = error
    rig.calls.itself = operation(status="DONE", **STOCKOUT)
    rig.look()
    assert rig.calls.asked == 0
    rig.look(MISSING_SECONDS)
    assert [insert.done for insert in inserts] == [True] * MOST_ASKED + [False]
    rig.look()
    assert all(isinstance(insert.failure, CloudNoCapacity) for insert in inserts)


def test_neither_lists_nor_operations(rig: Rig) -> None:
    """A zone that does not answer is asked for one of them at a time."""
    inserts = [rig.operations.watch(operation(f"op-{number}"), "head", rig.wake) for number in range(3)]
    rig.calls.listed = rig.calls.itself = CloudAway("no answer")
    rig.look(MISSING_SECONDS)
    assert (rig.calls.asked, rig.woken) == (1, 0)
    assert not any(insert.done for insert in inserts)


def test_two_looks_at_once(rig: Rig) -> None:
    """The sweep and the thread of the inventory may list at once: one of them lists operations."""
    insert = rig.operations.watch(operation(), "head", rig.wake)
    listed = rig.calls.operations

    def again(zone: str, kind: str, what: str) -> Iterator[Operation]:
        rig.operations.look()
        # Somebody takes it out of the table meanwhile.
        rig.operations._open.clear()
        return listed(zone, kind, what)

    rig.calls.listed = [operation(status="DONE")]
    rig.calls.operations = again  # type: ignore[method-assign]
    rig.look()
    assert (rig.calls.lists, insert.done, rig.woken) == (1, True, 1)


def test_under_way(rig: Rig) -> None:
    insert = rig.operations.watch(operation(), "head", rig.wake)
    assert rig.operations.runs_for("a", "np1")
    assert not rig.operations.runs_for("b", "np1")
    insert.lost()
    rig.look()
    rig.look()
    assert not rig.operations.runs_for("a", "np1")
