# SPDX-License-Identifier: Apache-2.0
"""Shares of tenants over time, with and without ``tenant-shares``: real launchers in virtual time, no client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.simulate.shares import TENANTS, fair, parts, simulate
from benchmarks.suite.model import LIMIT, OURS, RELEASED, Metric, Row, Scenario
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.costs import Costs
from benchmarks.support.place import Stage

NAME = "shares"


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    if candidate.name != OURS:
        return []
    rows, step = [], size["step_seconds"]
    # Without shares it has the order of the released launcher.
    for shares, name in ((True, OURS), (False, RELEASED)):
        stage.progress.step(f"  {'shares' if shares else 'by age'}")
        samples = simulate(size["seed"], size["seconds"], shares=shares).samples
        begin = samples[0][0]
        for number in range(int(size["seconds"] / step)):
            some = [one for one in samples if number <= (one[0] - begin) / step < number + 1]
            percent: dict[str, float | None] = {tenant: 100 * part for tenant, part in parts(some).items()}
            rows.append(Row(NAME, f"{(number + 1) * step / 60:g}", name, rounded(percent)))
    return rows


def limit(_costs: Costs, rows: Sequence[Row]) -> list[Row]:
    return [Row(NAME, row.case, LIMIT, rounded({**fair(row.values)})) for row in rows if row.candidate == OURS]


SCENARIO = Scenario(
    name=NAME,
    title="Part of its room that each of five tenants uses, over minutes; 'released': served by age",
    metrics=[Metric(name, name, "%", None, plot=not tenant.every) for name, tenant in TENANTS.items()],
    goals=(),
    run=run,
    sizes={"seed": 1, "seconds": 2400.0, "step_seconds": 240.0},
    quick={"seconds": 240.0, "step_seconds": 60.0},
    limit=limit,
    limit_note="the fair part",
    series=True,
)
