# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.operations`, without a cloud."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNoCapacity, CloudNotFound
from nodepool.driver.gce.operations import MISSING_SECONDS, PAUSE_SECONDS, InsertOperations
from nodepool.driver.gce.types import Operation
from tests.support.manual_clock import ManualClock

STOCKOUT: dict[str, Any] = {"error": {"errors": [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "none left"}]}}


def operation(name: str = "op-1", status: str = "PENDING", **more: Any) -> Operation:
    return Operation.of({"name": name, "zone": "x/zones/a", "targetLink": "x/np1", "status": status, **more})


class Calls:
    """Lists what the test wrote, and counts the entries that were read."""

    def __init__(self) -> None:
        self.listed: list[Operation] | Exception = []
        self.itself: Operation | Exception = CloudNotFound("there is none")
        self.read = 0
        self.lists = 0
        self.asked = 0

    def operations(self, kind: str, what: str) -> Iterator[Operation]:
        assert kind == "insert"
        self.lists += 1
        if isinstance(self.listed, Exception):
            raise self.listed
        for found in self.listed:
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


def test_trouble(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once; lists of instances go on."""
    insert = rig.operations.watch(operation(), "head", rig.wake)
    rig.calls.listed = CloudAway("no answer")
    with caplog.at_level(logging.WARNING):
        rig.look()
        rig.look()
    assert [record.getMessage() for record in caplog.records] == [
        "Provider north: the ends of creations are not known: no answer"
    ]
    assert not insert.done


def test_under_way(rig: Rig) -> None:
    insert = rig.operations.watch(operation(), "head", rig.wake)
    assert rig.operations.runs_for("a", "np1")
    assert not rig.operations.runs_for("b", "np1")
    insert.lost()
    rig.look()
    rig.look()
    assert not rig.operations.runs_for("a", "np1")
