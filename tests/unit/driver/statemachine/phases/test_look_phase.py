# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.phases.look_phase`."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from nodepool.driver.statemachine.finder import Search
from nodepool.driver.statemachine.phases.look_phase import LookPhase
from nodepool.exceptions import CloudUnavailableException
from tests.unit.driver.statemachine.phases.parts import LOG, Clock, make_node


class Run:
    """A phase; the lists of the cloud answer in turn."""

    def __init__(self, *answers: list[str] | Exception, late: bool = False) -> None:
        self.node = make_node()
        self.clock = Clock()
        self.circuit_open = False
        self.answers = list(answers)
        search = Search(self._find, lambda: None, [1.0, 3.0] if late else [], self.clock)
        self.phase = LookPhase(self.node, search, self, self.clock.now + 60, self.clock, LOG)

    def _find(self) -> Future[list[Any]]:
        future: Future[list[Any]] = Future()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future


def test_what_nobody_told_us_of() -> None:
    """L-4: one that the node names is known."""
    run = Run(["server-1", "server-2"])
    run.node.external_id = "server-1"
    assert run.phase.step() is None
    assert (run.phase.found, run.phase.cloud_away) == (["server-2"], False)


def test_shows_late() -> None:
    """L-4: what has no answer is looked for again."""
    run = Run([], [], ["server-3"], late=True)
    for pause in (1.0, 3.0):
        assert run.phase.step() == pause
        run.clock.now += pause
    assert run.phase.step() is None
    assert run.phase.found == ["server-3"]


def test_a_moment_of_trouble() -> None:
    run = Run(CloudUnavailableException("503"), [])
    assert run.phase.step() is not None
    assert run.phase.step() is None
    assert (run.phase.found, run.phase.cloud_away) == ([], False)


def test_cloud_is_away() -> None:
    """F-5: no longer than the attempt, and not at all while the provider's circuit breaker is open."""
    late = Run(CloudUnavailableException("503"), CloudUnavailableException("503"))
    assert late.phase.step() is not None
    late.clock.now += 60
    assert late.phase.step() is None
    assert late.phase.cloud_away
    away = Run(CloudUnavailableException("503"))
    away.circuit_open = True
    assert away.phase.step() is None
    assert away.phase.cloud_away
