# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.proof`, without a cloud."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound
from nodepool.driver.gce.proof import OPERATIONS, DeletionProof
from nodepool.driver.gce.types import GceRecord, Operation

ONE, TWO, THREE = "a/np1", "a/np2", "b/np1"


def deletion(one: str, status: str = "DONE", **more: Any) -> Operation:
    zone, _, name = one.partition("/")
    return Operation.of({"name": "op", "zone": f"x/zones/{zone}", "targetLink": f"x/{name}", "status": status, **more})


class Calls:
    """Answers what the test wrote, and counts."""

    def __init__(self, *deletions: Operation) -> None:
        self.deletions = deletions
        self.there: Exception | None = CloudNotFound("it is gone")
        self.asked: list[str] = []
        self.read = 0

    def instance(self, zone: str, name: str) -> GceRecord:
        self.asked.append(f"{zone}/{name}")
        if self.there is not None:
            raise self.there
        record: Any = object()
        return record  # type: ignore[no-any-return]

    def operations(self, kind: str, what: str) -> Iterator[Operation]:
        assert kind == "delete"
        for found in self.deletions:
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
    assert gone(calls, ONE, TWO, THREE) == {ONE, TWO}
    assert calls.asked == []


@pytest.mark.parametrize("newest", [deletion(ONE, "RUNNING"), deletion(ONE, error={"errors": [{"code": "X"}]})])
def test_only_the_newest_counts(newest: Operation) -> None:
    """CM-7: one that goes on, or has failed, proves nothing, whatever an earlier one says."""
    assert gone(Calls(newest, deletion(ONE), deletion(TWO)), ONE, TWO) == {TWO}


def test_no_more_is_read_than_needed() -> None:
    """The newest come first."""
    calls = Calls(deletion(ONE), deletion(TWO), deletion(THREE))
    assert gone(calls, ONE, TWO) == {ONE, TWO}
    assert calls.read == 2
    calls = Calls(*[deletion(THREE)] * (2 * OPERATIONS))
    assert gone(calls, ONE, TWO) == set()
    assert calls.read == OPERATIONS
