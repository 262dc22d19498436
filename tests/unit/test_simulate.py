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
    """All is served, with boots of 2 s; each launcher gets each change."""
    one, two = (measure(Demand(launchers, 2, requests=10)) for launchers in (1, 2))
    assert one.requests == 10
    assert 2.0 <= one.wait < 4.0
    assert two.events == 2 * one.events
    assert one.packets < two.packets < 3 * one.packets


def test_model() -> None:
    """Nothing gets cheaper by more launchers, whatever noise says."""
    found_line = line([(1, 10.0), (2, 12.0), (4, 16.0)])
    assert (found_line.fixed, found_line.each) == pytest.approx((8.0, 2.0))
    assert line([(1, 10.0), (2, 8.0)]) == Line(9.0, 0.0)
    with pytest.raises(ValueError, match="two numbers"):
        line([(1, 10.0), (1, 11.0)])
    costs = [Cost(n, 1, 100, 0.001 + 0.002 * n, 2.0 + 8 * n, 11.0, 14.0, 22.0 * n, 2.0) for n in (1, 2, 4)]
    found = model(costs, [replace(cost, cpu=2 * cost.cpu) for cost in costs])
    expected = [0.042, 0.021 * REAL_CPU, 82.0, 220.0, 11.0]
    at = [one.at(10) for one in (found.cpu, model(costs).cpu, found.packets, found.events)]
    assert [*at, found.client_packets] == pytest.approx(expected)


def test_limits() -> None:
    """More launchers help until the ensemble is full."""
    huge = Site(rate=1000.0, nodes=100_000, launchers=50)
    name, used = first_limit(use(MODEL, huge))
    assert (name, used > 10) == ("packets of an ensemble", True)
    needed = ensembles_needed(MODEL, huge)
    assert needed is not None
    assert first_limit(use(MODEL, replace(huge, ensembles=needed)))[1] <= 1.0
    assert first_limit(use(MODEL, replace(huge, ensembles=needed - 1)))[1] > 1.0
    assert ensembles_needed(MODEL, Site(1_000_000.0, 100, 2)) is None
    rates = [highest_rate(MODEL, launchers) for launchers in (1, 2, 20)]
    assert max(rates[0], rates[2]) < rates[1]
