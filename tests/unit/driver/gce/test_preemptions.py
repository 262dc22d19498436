# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.instances`, without a cloud."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway
from nodepool.driver.gce import instances
from nodepool.driver.gce.instances import Preemptions
from nodepool.driver.gce.types import PREEMPTED, Operation


def preemption(zone: str, number: int) -> Operation:
    name, target = f"op-{zone}-{number}", f"x/np{number}"
    return Operation.of({"name": name, "zone": f"x/zones/{zone}", "targetLink": target, "statusMessage": f"no {name}"})


class Calls:
    """Lists what the test wrote, and counts the entries that were read."""

    def __init__(self) -> None:
        self.listed: dict[str, list[Operation] | Exception] = {"a": [], "b": []}
        self.read = 0

    def operations(self, zone: str, kind: str, what: str) -> Iterator[Operation]:
        assert kind == PREEMPTED
        listed = self.listed[zone]
        if isinstance(listed, Exception):
            raise listed
        for found in listed:
            self.read += 1
            yield found


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def found(calls: Calls) -> Preemptions:
    return Preemptions("north", ["a", "b"], calls)


def test_what_is_known_ends_the_list_of_its_zone_only(calls: Calls, found: Preemptions) -> None:
    calls.listed["a"] = [preemption("a", 1)]
    found.look()
    assert (found.why("a", "np1"), found.why("b", "np1"), found.why("c", "np1")) == ("no op-a-1", None, None)
    calls.listed["b"] = [preemption("b", 2), preemption("b", 1)]
    found.look()
    assert (found.why("b", "np1"), found.why("b", "np2")) == ("no op-b-1", "no op-b-2")
    calls.read = 0
    found.look()
    assert calls.read == 2, "the newest of each zone is known"


def test_zone_without_an_answer(calls: Calls, found: Preemptions, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once; the other zone is looked at."""
    calls.listed = {"a": CloudAway("no answer"), "b": [preemption("b", 1)]}
    with caplog.at_level(logging.WARNING):
        found.look()
        found.look()
    assert [record.getMessage() for record in caplog.records] == [
        "Provider north: preemptions in a are not known: no answer"
    ]
    assert found.why("b", "np1") is not None


def test_no_more_is_remembered_than_needed(calls: Calls, found: Preemptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of each zone."""
    monkeypatch.setattr(instances, "MOST", 2)
    calls.listed = {zone: [preemption(zone, number) for number in (3, 2, 1)] for zone in "ab"}
    found.look()
    for zone in "ab":
        known = [number for number in (3, 2, 1) if found.why(zone, f"np{number}")]
        assert known == [3, 2]
    calls.read = 0
    found.look()
    assert calls.read == 2
