# SPDX-License-Identifier: Apache-2.0
"""Tests of `tests.chaos.deadline`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.deadline import MOST_SECONDS, CpuTimes, Deadline, cpu_times


class Machine:
    """Two CPUs; a test says how much of the time they have to spare."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.times = CpuTimes(0, 0)

    def spend(self, seconds: float, spare: float) -> None:
        self.now += seconds
        ticks = round(200 * seconds)
        self.times = CpuTimes(self.times.spare + round(spare * ticks), self.times.all + ticks)


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def deadline(machine: Machine) -> Deadline:
    return Deadline(60.0, lambda: machine.times, lambda: machine.now)


def test_time_with_cpus_to_spare_counts(machine: Machine, deadline: Deadline) -> None:
    machine.spend(59.0, 0.15)
    assert not deadline.passed()
    machine.spend(1.0, 0.0)
    assert not deadline.passed()
    machine.spend(1.0, 0.5)
    assert deadline.passed()
    assert (deadline.elapsed, deadline.starved) == (61.0, 1.0)


def test_not_for_ever(machine: Machine, deadline: Deadline) -> None:
    """A launcher that needs all CPUs is no reason to wait for it."""
    looks = 0
    while not deadline.passed():
        machine.spend(1.0, 0.0)
        looks += 1
    assert looks == 60 + MOST_SECONDS


def test_short_looks_are_judged_together(machine: Machine, deadline: Deadline) -> None:
    """The kernel's ticks are too few for them."""
    for _ in range(100):
        machine.spend(0.01, 0.0)
        deadline.passed()
    assert deadline.starved == pytest.approx(1.0, abs=0.25)


def test_at_least(machine: Machine, deadline: Deadline) -> None:
    machine.spend(50.0, 1.0)
    deadline.at_least(5.0)
    machine.spend(9.0, 1.0)
    assert not deadline.passed()
    deadline.at_least(15.0)
    machine.spend(14.0, 1.0)
    assert not deadline.passed()
    machine.spend(1.0, 1.0)
    assert deadline.passed()


def test_what_the_kernel_says(tmp_path: Path) -> None:
    """What the host takes (steal) is not there; guests are in the time of users; niced programs take their share."""
    file = tmp_path / "stat"
    file.write_text("cpu  1 20 300 4000 50000 600 7000 80 9 9\ncpu0 1 2 3 4 5 6 7 8 9 9\n", encoding="ascii")
    assert cpu_times(file) == CpuTimes(54000, 62001)
    assert cpu_times().all > 0
