# SPDX-License-Identifier: Apache-2.0
"""Faults are done in their order, and what becomes of them is noted."""

from __future__ import annotations

import pytest

from tests.chaos.events import Events, Violations
from tests.chaos.fault_runner import FaultRunner
from tests.chaos.schedule import Fault


class Runner(FaultRunner):
    """One fault works, one finds nobody, one has a mistake."""

    def _kill(self, _fault: Fault) -> str:
        return "done"

    def _freeze(self, _fault: Fault) -> str:
        raise ConnectionRefusedError

    def _terminate(self, _fault: Fault) -> str:
        raise KeyError("mistake")


@pytest.fixture
def events() -> Events:
    return Events()


def run(events: Events, *kinds: str) -> list[str]:
    """Does faults of these kinds at once, each on another launcher; returns the violations."""
    violations = Violations(events)
    Runner(events, violations).run([Fault(0.0, kind, launcher=number) for number, kind in enumerate(kinds)])
    return violations.found


def test_what_is_done_is_noted(events: Events) -> None:
    assert run(events, "kill") == []
    assert [text for _, text in events.events] == ["fault kill process 0 for 0 s", "end of kill process 0: done"]


def test_fault_that_is_not_possible_now(events: Events) -> None:
    assert run(events, "freeze") == []
    assert events.events[-1][1] == "fault freeze was not possible: ConnectionRefusedError()"


def test_mistake_in_the_harness(events: Events) -> None:
    [found] = run(events, "terminate")
    assert found.endswith("fault terminate is wrong: KeyError('mistake')")


def test_methods_of_places_come_first(events: Events) -> None:
    class Place:
        def kill(self, _fault: Fault) -> str:
            return "by the place"

    runner = Runner(events, Violations(events))
    runner._places = [Place()]
    runner.run([Fault(0.0, "kill", launcher=1)])
    assert events.events[-1][1] == "end of kill process 1: by the place"


def test_each_violation_counts_once(events: Events) -> None:
    violations = Violations(events)
    for _ in range(2):
        violations.add("too many servers")
    assert len(violations.found) == 1
