# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.inventory_machine`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nodepool.driver.statemachine import Instance
from nodepool.driver.statemachine.inventory_machine import SAFETY_SECONDS, InventoryMachine, Step, cloud_is_away
from nodepool.exceptions import CloudUnavailableException, LaunchError
from tests.support.manual_executor import ManualExecutor
from tests.unit.driver.statemachine.instances import LOG, Seen, StubInstances, seen


class Machine(InventoryMachine[Seen]):
    """Does what the test says, by state."""

    def __init__(self, cloud: StubInstances, steps: Mapping[str, Step] | None = None) -> None:
        super().__init__(cloud, LOG, cloud.clock)
        self.given = dict(steps or {})

    def steps(self) -> Mapping[str, Step]:
        return self.given


@pytest.fixture
def cloud() -> StubInstances:
    return StubInstances()


@pytest.mark.parametrize(
    ("error", "away"),
    [(CloudUnavailableException("503"), True), (TimeoutError(), True), (LaunchError("no"), False), (KeyError(), False)],
)
def test_cloud_is_away(error: Exception, away: bool) -> None:
    assert cloud_is_away(error) is away


def test_steps(cloud: StubInstances) -> None:
    """They follow one another until one waits, and end with the instance; the time of a state is known."""
    instance = Instance()
    machine = Machine(cloud)
    machine.given = {"start": lambda: machine.go("next"), "next": lambda: False, "last": lambda: instance}
    assert machine.advance() is None
    assert (machine.state, machine.since, machine.next_advance_seconds) == ("next", cloud.clock.now, SAFETY_SECONDS)
    cloud.clock.now += 5
    machine.go("last")
    assert machine.since == cloud.clock.now
    assert machine.advance() is instance
    assert (machine.state, machine.complete) == ("complete", True)
    assert machine.advance() is None


def test_calls(cloud: StubInstances) -> None:
    """Made elsewhere; the end wakes the machine; the answer is taken once."""
    executor = cloud.others = ManualExecutor(eager=False)  # type: ignore[assignment]
    woken: list[int] = []
    machine = Machine(cloud)
    machine.wake = lambda: woken.append(1)
    machine.call(lambda: 7)
    assert (machine.calling, machine.answered) == (True, False)
    executor.run()
    assert machine.answered
    assert machine.answer() == 7
    assert not machine.calling
    machine.call(lambda: int("x"))
    executor.run()
    with pytest.raises(ValueError, match="'x'"):
        machine.answer()
    assert woken == [1, 1]
    machine.call(lambda: 8)
    machine.forget_call()
    assert not machine.calling


def test_reached(cloud: StubInstances) -> None:
    """A machine that waits for a time comes back then, and is looked at now and then for safety."""
    machine = Machine(cloud)
    assert not machine.reached(cloud.clock.now + 2)
    assert machine.next_advance_seconds == 2
    assert not machine.reached(cloud.clock.now + 60)
    assert machine.next_advance_seconds == SAFETY_SECONDS
    assert machine.reached(cloud.clock.now)


def test_news(cloud: StubInstances) -> None:
    """News of its instance wake it, as long as it goes on; an error ends the lists for it."""
    woken: list[int] = []

    def fail() -> bool:
        raise LaunchError("no")

    machine = Machine(cloud, {"start": lambda: False, "last": fail})
    machine.wake = lambda: woken.append(1)
    machine.wait_for("boot", "a")
    assert machine.waiting
    cloud.show(seen("a"), seen("b"))
    assert woken == [1]
    cloud.show(seen("a"))
    assert woken == [1]
    machine.need_complete_lists()
    cloud.clock.now += 19
    machine.advance()
    cloud.clock.now += 19
    assert cloud.inventory._pause() < float("inf"), "it has looked"
    cloud.show(seen("a"))
    assert woken == [1, 1]
    machine.go("last")
    with pytest.raises(LaunchError):
        machine.advance()
    assert cloud.inventory._pause() == float("inf")


def test_news_that_change_nothing(cloud: StubInstances) -> None:
    """The machine waits on, without a step: it is not forgotten, and hears of what matters."""
    woken: list[int] = []

    class Choosy(Machine):
        def lets_go_on(self, record: Seen | None) -> bool:
            return record is None or record.status == "running"

    machine = Choosy(cloud)
    machine.wake = lambda: woken.append(1)
    machine.wait_for("boot", "a")
    for number in range(3):
        cloud.clock.now += 19
        cloud.show(seen("a", f"building {number}"))
        assert cloud.inventory._pause() < float("inf"), "it still waits"
    assert woken == []
    cloud.show(seen("a"))
    cloud.show()
    assert woken == [1, 1]
    machine.wait_for("search", complete=True)
    cloud.show(seen("a", "building"))
    assert woken == [1, 1, 1], "it waits for no instance of its own"
    machine.stop_waiting(True)
    assert cloud.inventory._pause() == float("inf")
