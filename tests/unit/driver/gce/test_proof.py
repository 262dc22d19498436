# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.instances`, without a cloud."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound
from nodepool.driver.gce.instances import OPERATIONS, DeletionProof
from nodepool.driver.gce.types import GceRecord, Operation

ONE, TWO, THREE, FOUR = "a/np1", "a/np2", "b/np1", "b/np4"


def deletion(one: str, status: str = "DONE", **more: Any) -> Operation:
    zone, _, name = one.partition("/")
    return Operation.of({"name": "op", "zone": f"x/zones/{zone}", "targetLink": f"x/{name}", "status": status, **more})


class Calls:
    """Answers what the test wrote, and counts."""

    def __init__(self, *deletions: Operation) -> None:
        self.deletions = deletions
        self.there: Exception | None = CloudNotFound("it is gone")
        self.asked: list[str] = []
        self.listed: list[str] = []
        self.away: set[str] = set()
        self.read = 0

    def instance(self, zone: str, name: str) -> GceRecord:
        self.asked.append(f"{zone}/{name}")
        if self.there is not None:
            raise self.there
        record: Any = object()
        return record  # type: ignore[no-any-return]

    def operations(self, zone: str, kind: str, what: str) -> Iterator[Operation]:
        assert kind == "delete"
        if zone in self.away:
            raise CloudAway(f"no answer from {zone}")
        self.listed.append(zone)
        for found in self.deletions:
            if found.zone == zone:
                self.read += 1
                yield found


def gone(calls: Calls, *ids: str) -> set[str]:
    """Those that are proved to be gone."""
    errors = DeletionProof("north", calls).look(lambda: list(ids))
    assert all(isinstance(error, CloudNotFound) for error in errors.values())
    return set(errors)


def test_one_is_asked_for_itself() -> None:
    """GC-9: 404 is the proof; trouble is told, and that it is there is no news."""
    calls = Calls()
    assert gone(calls, ONE) == {ONE}
    calls.there = None
    assert gone(calls, ONE) == set()
    calls.there = CloudAway("no answer")
    assert list(DeletionProof("north", calls).look(lambda: [ONE])) == [ONE]
    assert (calls.asked, calls.read) == ([ONE] * 3, 0)


def test_many_with_one_list() -> None:
    """GC-9, CM-7: the deletion that has ended is the proof, of the instance in its zone."""
    calls = Calls(deletion(TWO), deletion(ONE))
    assert gone(calls, ONE, TWO) == {ONE, TWO}
    assert (calls.listed, calls.asked) == (["a"], [])


def test_each_zone_has_its_list() -> None:
    """The newest come first in the list of a zone only; a zone with one instance needs none."""
    calls = Calls(deletion(TWO), deletion(FOUR), deletion(ONE), deletion(THREE))
    assert gone(calls, ONE, THREE, TWO, FOUR) == {ONE, TWO, THREE, FOUR}
    assert (calls.listed, calls.read, calls.asked) == (["a", "b"], 4, [])
    assert gone(calls, ONE, TWO, THREE) == {ONE, TWO, THREE}
    assert (calls.listed, calls.asked) == (["a", "b", "a"], [THREE])


def test_zone_without_an_answer() -> None:
    """What is in other zones is proved all the same."""
    calls = Calls(deletion(THREE), deletion(FOUR))
    calls.away = {"a"}
    errors = DeletionProof("north", calls).look(lambda: [ONE, THREE, TWO, FOUR])
    away = {one for one, error in errors.items() if isinstance(error, CloudAway)}
    assert (away, set(errors) - away) == ({ONE, TWO}, {THREE, FOUR})


@pytest.mark.parametrize("newest", [deletion(ONE, "RUNNING"), deletion(ONE, error={"errors": [{"code": "X"}]})])
def test_only_the_newest_counts(newest: Operation) -> None:
    """CM-7: one that goes on, or has failed, proves nothing, whatever an earlier one says."""
    assert gone(Calls(newest, deletion(ONE), deletion(TWO)), ONE, TWO) == {TWO}


def test_no_more_is_read_than_needed() -> None:
    """The newest come first."""
    calls = Calls(deletion(ONE), deletion(TWO), deletion("a/np3"))
    assert gone(calls, ONE, TWO) == {ONE, TWO}
    assert calls.read == 2
    calls = Calls(*[deletion("a/np3")] * (2 * OPERATIONS))
    assert gone(calls, ONE, TWO) == set()
    assert calls.read == OPERATIONS
