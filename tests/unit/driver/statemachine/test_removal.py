# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.statemachine.removal`: who sends a deletion again that had no effect."""

from __future__ import annotations

import itertools

import pytest

from nodepool.driver.statemachine import StateMachine
from nodepool.driver.statemachine.removal import Removal
from nodepool.exceptions import NotFound
from tests.support.manual_clock import ManualClock


class Deletion(StateMachine):
    """Has no effect until the test says so."""

    gone = False

    def __init__(self, made_at: float = 0.0) -> None:
        super().__init__()
        self.made_at = made_at

    def advance(self) -> None:
        self.next_advance_seconds = 5.0
        self.complete = self.gone


class ResendingDeletion(Deletion):
    resends = True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def run(kind: type[Deletion], clock: ManualClock) -> tuple[list[Deletion], Removal]:
    """Ten minutes of a deletion; the machines that were made, and it."""
    made: list[Deletion] = []

    def make() -> Deletion:
        made.append(kind(clock.now))
        return made[-1]

    removal = Removal("cloud", make, lambda: None, clock)
    end = clock.now + 600
    while clock.now < end:
        wait = removal.step()
        assert wait is not None
        clock.now += max(0.1, wait)
    return made, removal


def test_machines_of_drivers_without_an_inventory(clock: ManualClock) -> None:
    """X-5: after 20 s, 40 s and so on there is another one, which sends the deletion again."""
    made, removal = run(Deletion, clock)
    gaps = [round(later.made_at - earlier.made_at) for earlier, later in itertools.pairwise(made)]
    assert gaps == [20, 40, 80, 160]
    made[-1].gone = True
    assert removal.step() is None


def test_machines_that_resend_by_themselves(clock: ManualClock) -> None:
    """One is enough."""
    made, removal = run(ResendingDeletion, clock)
    assert len(made) == 1
    made[0].gone = True
    assert removal.step() is None


def test_gone(clock: ManualClock) -> None:
    """X-4: NotFound is what a deletion wants to hear."""

    class Gone(Deletion):
        def advance(self) -> None:
            raise NotFound("it")

    assert Removal("cloud", Gone, lambda: None, clock).step() is None
