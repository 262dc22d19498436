# SPDX-License-Identifier: Apache-2.0
"""Many requests at once and fewer nodes, each used and returned. The rate is until the last return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.suite.goals import Bound, TimesReleased
from benchmarks.suite.model import FLOOR, LIMIT, Row, Scenario, find
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.costs import Costs
from benchmarks.support.place import Stage, per_request
from benchmarks.support.static_hosts import COSTS, LABEL, LATENCIES, RATE, latencies, ready_hosts

NAME = "steady"


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    count = size["requests"]
    with stage.place(candidate) as place, ready_hosts(place, size["hosts"], size["warm_up"]) as ready:
        before = place.read()
        batch = ready.load.run(count, LABEL, ready.load.use_and_return)
        # The last nodes come back after the last request: their packets belong to it.
        ready.wait_idle()
        cost = place.read() - before
    values = {"rate": count / (batch.end - batch.start), **latencies([batch]), **per_request(cost, count)}
    return [Row(NAME, "", candidate.name, rounded(values))]


def limit(_costs: Costs, rows: Sequence[Row]) -> list[Row]:
    floor = find(rows, FLOOR, "")
    return [] if floor is None else [Row(NAME, "", LIMIT, {key: floor.values[key] for key in ("rate", "received")})]


SCENARIO = Scenario(
    name=NAME,
    title="2000 requests at once, 100 static nodes, each used and returned",
    metrics=(RATE, *LATENCIES, *COSTS),
    goals=(
        TimesReleased("rate", 5),
        TimesReleased("cpu_ms", 4),
        Bound("received", at_most=30),
        Bound("failed", at_most=0),
    ),
    run=run,
    sizes={"hosts": 100, "requests": 2000, "warm_up": 200},
    quick={"hosts": 20, "requests": 60, "warm_up": 10},
    floor=True,
    limit=limit,
    limit_note="the load with the stand-in, which takes no locks and makes two writes a request",
)
