# SPDX-License-Identifier: Apache-2.0
"""Calls of drivers that have not returned."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.hooks import AT_ONCE, OF_THE_CLOUD, RunningCalls, TimeBound, about
from nodepool.model.node import Node
from tests.support.manual_clock import ManualClock


def begin(calls: RunningCalls, clock: ManualClock, bound: TimeBound = AT_ONCE, *args: Any) -> int:
    return calls.begin("launch", "cloud", clock(), bound, SimpleNamespace(), args)


def test_late_as_long_as_it_runs() -> None:
    clock = ManualClock()
    calls = RunningCalls(clock)
    number = begin(calls, clock, AT_ONCE, "small")
    clock.pass_seconds(0.9)
    soon = calls.late()
    clock.pass_seconds(0.1)
    (late,) = calls.late()
    assert soon == []
    assert (late.provider, late.hook) == ("cloud", "launch")
    assert (late.about, late.thread, late.blocks) == ("small", threading.current_thread().name, False)
    assert late.seconds == pytest.approx(1.0)
    calls.end(number)
    assert calls.late() == []


@pytest.mark.parametrize(
    ("bound", "told"), [(AT_ONCE, [1, 10, 60, 600, 3600, 7200, 10800]), (OF_THE_CLOUD, [60, 600, 3600, 7200, 10800])]
)
def test_told_again_and_again(bound: TimeBound, told: list[int]) -> None:
    """G-16: less and less often; at the latest, a second after the time."""
    clock = ManualClock()
    calls = RunningCalls(clock)
    begin(calls, clock, bound)
    found = []
    for second in range(1, 10_900):
        clock.pass_seconds(1.0)
        found += [second for late in calls.late() if late.tell]
    assert found == told


def test_each_call_is_told_of() -> None:
    clock = ManualClock()
    calls = RunningCalls(clock)
    begin(calls, clock, AT_ONCE, "first")
    clock.pass_seconds(5.0)
    calls.late()
    begin(calls, clock, AT_ONCE, "second")
    clock.pass_seconds(1.0)
    assert [(late.about, late.tell) for late in calls.late()] == [("first", False), ("second", True)]


def test_about() -> None:
    """Ids only; a driver is asked nothing."""

    class Driver:
        def __init__(self) -> None:
            self.request = SimpleNamespace(id="100-1")
            self.external_id = "vm-1"

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    node = Node("small")
    assert about(Driver(), ("small", node, 3)) == f"small, {node}, request 100-1, instance vm-1"
    assert about(object(), ()) == ""
