# SPDX-License-Identifier: Apache-2.0
"""What lists of operations say: how creations and deletions end; and zones without an answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound
from nodepool.driver.gce import instances
from nodepool.driver.gce.client import FAILURES, PAUSE, ComputeEngine, SilentZones
from nodepool.driver.gce.types import GceRecord, Operation
from tests.support.manual_clock import ManualClock
from tests.support.tables import driver_table

NO_ANSWER = CloudAway("no answer")
GONE = CloudNotFound("there is none")


def operation(name: str = "op-1", status: str = "DONE", target: str = "a/np1", **more: Any) -> Operation:
    zone, _, instance = target.partition("/")
    given = {"name": name, "zone": f"x/zones/{zone}", "targetLink": f"x/{instance}", "status": status}
    return Operation({**given, **more})


class Calls(ComputeEngine):
    """Lists what the test wrote, by zone, and counts the entries that were read; asks for one thing likewise."""

    def __init__(self, **listed: list[Operation] | Exception) -> None:
        self.listed = listed
        self.itself: Operation | Exception | None = GONE
        self.looked_at: list[str] = []
        self.asked: list[str] = []
        self.read = 0

    def operations(self, zone: str, kind: str, what: str) -> Iterator[Operation]:
        self.looked_at.append(zone)
        listed = self.listed.get(zone, [])
        if isinstance(listed, Exception):
            raise listed
        for found in listed:
            self.read += 1
            yield found

    def operation(self, zone: str, name: str) -> Operation:
        self.asked.append(name)
        if not isinstance(self.itself, Operation):
            raise self.itself or AssertionError
        return self.itself

    def instance(self, zone: str, name: str) -> GceRecord:
        self.asked.append(f"{zone}/{name}")
        if isinstance(self.itself, Exception):
            raise self.itself
        record: Any = object()
        return record  # type: ignore[no-any-return]


# -- creations --


class Rig:
    def __init__(self, **listed: list[Operation] | Exception) -> None:
        self.clock = ManualClock().rules()
        self.calls = Calls(**listed)
        self.operations = instances.InsertOperations("north", self.calls)
        self.woken = 0

    def wake(self) -> None:
        self.woken += 1

    def watch(self, name: str = "op-1", status: str = "PENDING", target: str = "a/np1") -> instances.Insert:
        return self.operations.watch(operation(name, status, target), "head", self.wake)

    def look(self, seconds: float = instances.PAUSE_SECONDS) -> None:
        self.clock.now += seconds
        self.operations.look()


def test_zone_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    """GC-5: lists of instances wait for each attempt. So it is left alone, longer each time, and the others are not."""
    rig = Rig(a=NO_ANSWER, b=[operation("op-2", "RUNNING", "b/np2")])
    missing, twin, other = rig.watch(), rig.watch("op-3"), rig.watch("op-2", target="b/np2")
    rig.calls.itself = NO_ANSWER
    rig.look(instances.MISSING_SECONDS)
    for _ in range(10):
        rig.look()
    assert (rig.calls.looked_at.count("a"), rig.calls.looked_at.count("b"), rig.calls.asked) == (1, 11, ["op-1"])
    rig.look(instances.AWAY.first_seconds - 10)
    assert rig.calls.looked_at.count("a") == 2
    rig.look(instances.AWAY.first_seconds)
    assert (rig.calls.looked_at.count("a"), len(rig.calls.asked)) == (2, 2)
    assert caplog.text.count("are not known") == 1
    rig.calls.listed["a"] = [operation(), operation("op-3")]
    rig.look(instances.AWAY.first_seconds)
    assert (missing.done, twin.done, other.done) == (True, True, False)


# -- deletions --


@pytest.mark.parametrize(
    ("itself", "listed", "ids", "absent", "zones", "read"), driver_table("gce", "proof_of_absence")
)
def test_proof_of_absence(
    itself: bool, listed: dict[str, Any], ids: list[str], absent: list[str], zones: list[str], read: int
) -> None:
    """GC-9, CM-7: lists of instances are late, so operations must say it."""
    calls = Calls()
    for zone, deletions in listed.items():
        found = [operation("op", target=target, **{"status": "DONE", **more}) for target, more in deletions or []]
        calls.listed[zone] = NO_ANSWER if deletions is None else found
    calls.itself = None if itself else GONE
    errors = instances.proven_gone(calls, lambda: ids)
    assert sorted(one for one, error in errors.items() if isinstance(error, CloudNotFound)) == sorted(absent)
    assert {type(error) for one, error in errors.items() if one not in absent} <= {CloudAway}
    assert (calls.looked_at, calls.read) == (zones, read)


# -- zones without an answer --


class Zones(SilentZones):
    def __init__(self, *zones: str) -> None:
        self.now = ManualClock().rules()
        super().__init__("north", zones)

    def fail(self, zone: str, times: int = FAILURES) -> None:
        for _ in range(times):
            self.no_answer(zone)

    def let_through(self, zone: str) -> bool:
        try:
            self.check(zone)
        except CloudAway as error:
            return error.maybe_done
        return True


def test_silent_zone() -> None:
    """One call may fail anywhere; an answer of whatever kind ends the row. One call asks now and then: while it is
    under way all others are refused.
    """
    zones = Zones("a", "b")
    zones.fail("a", FAILURES - 1)
    zones.answered("a")
    zones.fail("a", FAILURES - 1)
    assert zones.let_through("a")
    zones.fail("a", 1)
    assert [zones.let_through("a"), zones.let_through("b"), zones.silent("a"), zones.silent("b")] == [
        *(False, True),
        *(True, False),
    ]
    zones.now.now += PAUSE.first_seconds
    assert [zones.let_through("a"), zones.let_through("a")] == [True, False]
    zones.fail("a", 1)
    zones.answered("a")
    assert [zones.let_through("a"), zones.let_through("a")] == [True, True]


def test_no_zone_answers() -> None:
    """Then the cloud is away, and the framework asks when it is back: no zone must be left alone after that."""
    zones, alone = Zones("a", "b"), Zones("a")
    for each, zone in ((zones, "a"), (zones, "b"), (alone, "a")):
        each.fail(zone)
    assert [zones.let_through("a"), zones.let_through("b"), alone.let_through("a")] == [True] * 3
    assert not zones.silent("a")
    # A zone of an earlier configuration answers: that says nothing of those.
    zones.answered("c")
    zones.no_answer("d")
    assert zones.let_through("a")
    zones.answered("b")
    assert not zones.let_through("a")
