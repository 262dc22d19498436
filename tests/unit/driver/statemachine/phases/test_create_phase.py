# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.phases.create_phase`."""

from __future__ import annotations

import pytest

from nodepool.driver.statemachine import Instance, StateMachine
from nodepool.driver.statemachine.phases.create_phase import CreatePhase
from nodepool.driver.statemachine.removal import Driven
from nodepool.exceptions import (
    LaunchNetworkException,
    LaunchStatusException,
    ServerCreateTimeoutException,
    ZKConnectionError,
)
from nodepool.model.node import Node
from tests.unit.driver.statemachine.phases.parts import (
    LOG,
    Clock,
    Completed,
    Machine,
    Writes,
    make_instance,
    make_node,
    make_order,
)


class Run:
    """A phase, and what it told."""

    def __init__(self, machine: StateMachine, writes: Writes | None = None, id_in_advance: str | None = None) -> None:
        self.node: Node = make_node()
        self.writes = writes or Writes()
        self.clock = Clock()
        self.answers = 0
        driven = Driven("cloud", machine, lambda: None)
        deadline = self.clock.now + 60
        self.phase = CreatePhase(
            make_order(self.node), self.writes, driven, self._worked, deadline, self.clock, LOG, id_in_advance
        )

    def _worked(self) -> None:
        self.answers += 1


def test_id_is_stored_at_once() -> None:
    """L-3: before the instance is complete, and once."""
    run = Run(Machine(None, "server-1", None, make_instance()))
    assert run.phase.step() is not None
    assert (run.writes.stored, run.answers) == ([], 0)
    assert run.phase.step() is not None
    assert (run.writes.stored, run.answers) == (["server-1"], 1)
    assert run.phase.step() is not None
    assert run.phase.step() is None
    assert run.writes.stored == ["server-1"]
    assert (run.node.external_id, run.node.interface_ip, run.node.hostname) == ("server-1", "192.0.2.7", None)


def test_id_that_is_stored_already() -> None:
    """L-3: it is written once, with the lock of the node. The node has it when the machine says it."""
    run = Run(Machine(None, "server-1", None, make_instance()), id_in_advance="server-1")
    known = []
    for _ in range(3):
        assert run.phase.step() is not None
        known.append((run.node.external_id, run.answers))
    assert known == [(None, 0), ("server-1", 1), ("server-1", 1)]
    assert run.phase.step() is None
    assert run.writes.stored == []


def test_machine_knows_better() -> None:
    """L-3: what was stored in advance is replaced."""
    run = Run(Machine("server-2"), id_in_advance="server-1")
    run.phase.step()
    assert run.writes.stored == ["server-2"]


def test_only_a_name_so_far() -> None:
    """L-3: it is stored, and then the machine goes on in the same step."""

    class Announces(Machine):
        def advance(self) -> Instance | None:
            found = super().advance()
            self.announced = not self.complete
            self.next_advance_seconds = 0.0 if self.external_id == "server-1" else 5.0
            return found

    machine = Announces("server-1", "server-2", None)
    run = Run(machine)
    assert run.phase.step() == 5.0
    assert run.writes.stored == ["server-1", "server-2"]
    assert machine.script == [None]


def test_a_creation_that_is_begun_anew() -> None:
    """L-3, L-6: the id of an instance that is gone is not kept until the next one has an id."""

    class BegunAnew(Machine):
        begun_anew = 0

        def advance(self) -> Instance | None:
            if self.script[0] is None:
                self.external_id, self.begun_anew = None, 1
            return super().advance()

    for id_in_advance, first in ((None, ["server-1"]), ("server-1", [])):
        run = Run(BegunAnew("server-1", None, None, "server-1"), id_in_advance=id_in_advance)
        for expected in (first, [*first, None], [*first, None], [*first, None, "server-1"]):
            run.phase.step()
            assert run.writes.stored == expected


def test_id_of_a_machine_that_fails() -> None:
    """L-3: what was made is known, whatever comes after."""

    class Fails(StateMachine):
        def advance(self) -> None:
            self.external_id = "server-9"
            raise LaunchStatusException("broken")

    run = Run(Fails())
    with pytest.raises(LaunchStatusException):
        run.phase.step()
    assert run.writes.stored == ["server-9"]


def test_id_that_cannot_be_stored() -> None:
    run = Run(Machine("server-1"), Writes(error=ZKConnectionError("gone")))
    with pytest.raises(ZKConnectionError):
        run.phase.step()
    assert run.node.external_id == "server-1"


def test_launch_timeout() -> None:
    """L-5: never a longer pause than what is left, and then an error that says how far it got."""
    machine = Machine(None, None)
    machine.next_advance_seconds = 500.0
    run = Run(machine)
    run.clock.now += 58
    assert run.phase.step() == 2
    run.clock.now += 2
    with pytest.raises(ServerCreateTimeoutException, match="launch-timeout of 60 s, it got as far as 'start'"):
        run.phase.step()


def test_no_address() -> None:
    with pytest.raises(LaunchNetworkException, match="instance server-1 has no address"):
        Run(Machine(make_instance(None))).phase.step()


def test_complete_without_an_instance() -> None:
    """Bad input: a driver that breaks its contract."""
    with pytest.raises(LaunchStatusException, match="not what it is"):
        Run(Completed()).phase.step()
