# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.phases.clean_phase`."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.statemachine import StateMachine
from nodepool.driver.statemachine.phases.clean_phase import CleanPhase
from nodepool.driver.statemachine.removal import Removal
from nodepool.exceptions import LaunchStatusException, NotFound, ServerCreateTimeoutException
from tests.unit.driver.statemachine.phases.parts import LOG, Clock, Completed, Machine, Writes, make_node


class Run:
    """A phase; notes what it deletes, with machines that are given in turn."""

    def __init__(self, external_id: str | None, others: list[Any], *machines: StateMachine) -> None:
        self.node = make_node()
        self.node.external_id = external_id
        self.others = others
        self.writes = Writes()
        self.clock = Clock()
        self.machines = list(machines)
        self.deleted: list[Any] = []
        self.phase = CleanPhase(self.node, self.writes, others, self._removal, self.clock.now + 60, self.clock, LOG)

    def _removal(self, external_id: Any) -> Removal:
        self.deleted.append(external_id)
        return Removal("cloud", lambda: self.machines.pop(0), lambda: None, self.clock)


def test_everything_goes() -> None:
    """L-4: first what the node names, which then names nothing; one that is gone already is no error."""
    run = Run("server-1", ["server-2"], Machine(None, NotFound()), Completed())
    assert run.phase.step() is not None
    assert run.writes.stored == []
    assert run.phase.step() is None
    assert run.deleted == ["server-1", "server-2"]
    assert (run.node.external_id, run.writes.stored, run.others) == (None, [None], [])


def test_nothing_to_do() -> None:
    run = Run(None, [])
    assert run.phase.step() is None
    assert run.writes.stored == []


def test_launch_timeout() -> None:
    """L-5: the time of the next attempt passes meanwhile."""
    run = Run("server-1", [], Machine(None))
    assert run.phase.step() is not None
    run.clock.now += 60
    with pytest.raises(ServerCreateTimeoutException, match="previous instance was not deleted"):
        run.phase.step()
    assert run.node.external_id == "server-1"


def test_error() -> None:
    """What is left stays known."""
    run = Run(None, ["server-2", "server-3"], Machine(LaunchStatusException("no")))
    with pytest.raises(LaunchStatusException):
        run.phase.step()
    assert run.others == ["server-2"]
