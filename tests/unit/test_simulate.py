# SPDX-License-Identifier: Apache-2.0
"""tools/simulate: a small site in virtual time, and what is concluded from costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulate.extrapolate import (
    REAL_CPU,
    Line,
    Model,
    Site,
    ensembles_needed,
    first_limit,
    highest_rate,
    line,
    model,
    use,
)
from benchmarks.simulate.fleet import Cost, Demand, measure

MODEL = Model(cpu=Line(0.002, 0.004), packets=Line(2.0, 8.0), events=Line(0.0, 22.0), client_packets=10.0)


def test_small_site() -> None:
    """All is served; what does not depend on the machine is the same each time."""
    one = measure(Demand(1, 2, requests=10))
    two = measure(Demand(2, 2, requests=10))
    assert one.requests == 10
    # A boot takes 2 s.
    assert 2.0 <= one.wait < 4.0
    # Every launcher hears of every change.
    assert two.events == 2 * one.events
    assert one.packets < two.packets < 3 * one.packets


def test_line() -> None:
    found = line([(1, 10.0), (2, 12.0), (4, 16.0)])
    assert found.fixed == pytest.approx(8.0)
    assert found.each == pytest.approx(2.0)
    # Nothing gets cheaper by more launchers, whatever noise says.
    assert line([(1, 10.0), (2, 8.0)]) == Line(9.0, 0.0)
    with pytest.raises(ValueError, match="two numbers"):
        line([(1, 10.0), (1, 11.0)])


def test_model() -> None:
    costs = [Cost(n, 1, 100, 0.001 + 0.002 * n, 2.0 + 8 * n, 11.0, 14.0, 22.0 * n, 2.0) for n in (1, 2, 4)]
    found = model(costs, [replace(cost, cpu=2 * cost.cpu) for cost in costs])
    assert found.cpu.at(10) == pytest.approx(0.042)
    assert model(costs).cpu.at(10) == pytest.approx(0.021 * REAL_CPU)
    assert found.packets.at(10) == pytest.approx(82.0)
    assert found.events.at(10) == pytest.approx(220.0)
    assert found.client_packets == pytest.approx(11.0)


def test_limits() -> None:
    huge = Site(rate=1000.0, nodes=100_000, launchers=50)
    name, used = first_limit(use(MODEL, huge))
    assert name == "packets of an ensemble"
    assert used > 10
    needed = ensembles_needed(MODEL, huge)
    assert needed is not None
    assert first_limit(use(MODEL, Site(1000.0, 100_000, 50, needed)))[1] <= 1.0
    assert first_limit(use(MODEL, Site(1000.0, 100_000, 50, needed - 1)))[1] > 1.0
    assert ensembles_needed(MODEL, Site(1_000_000.0, 100, 2)) is None


def test_more_launchers_help_until_the_ensemble_is_full() -> None:
    rates = [highest_rate(MODEL, launchers) for launchers in (1, 2, 20)]
    assert rates[0] < rates[1]
    assert rates[2] < rates[1]
