# SPDX-License-Identifier: Apache-2.0
"""As many requests at once as nodes are ready, some rounds. The rate is that of fulfilment."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.suite.goals import Bound, TimesReleased
from benchmarks.suite.model import FLOOR, LIMIT, Row, Scenario, find
from benchmarks.suite.statistics import median, rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.costs import Costs
from benchmarks.support.counters import Reading
from benchmarks.support.place import Stage, per_request
from benchmarks.support.static_hosts import COSTS, LABEL, LATENCIES, RATE, latencies, ready_hosts

NAME = "burst"


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    jitter, count = random.Random(2), size["requests"]
    runs, cost = [], Reading.zero()
    with stage.place(candidate) as place, ready_hosts(place, size["hosts"], size["warm_up"]) as ready:
        for _ in range(size["rounds"]):
            time.sleep(jitter.uniform(0.1, 1.1))
            fulfilled: list[Any] = []
            before = place.read()
            runs.append(ready.load.run(count, LABEL, fulfilled.append))
            cost += place.read() - before
            for request in fulfilled:
                ready.load.use_and_return(request)
            ready.wait_idle()
    rate = median(count / (run.last_fulfilled - run.start) for run in runs)
    values = {"rate": rate, **latencies(runs), **per_request(cost, count * len(runs))}
    return [Row(NAME, "", candidate.name, rounded(values))]


def limit(costs: Costs, rows: Sequence[Row]) -> list[Row]:
    floor = find(rows, FLOOR, "")
    rates = [costs.writes_per_second / 2, (floor and floor.get("rate")) or costs.writes_per_second]
    return [Row(NAME, "", LIMIT, rounded({"rate": min(rates)}))]


SCENARIO = Scenario(
    name=NAME,
    title="80 requests at once, 100 static nodes are ready",
    metrics=(RATE, *LATENCIES, *COSTS),
    goals=(TimesReleased("rate", 5), Bound("failed", at_most=0)),
    run=run,
    sizes={"hosts": 100, "requests": 80, "rounds": 5, "warm_up": 200},
    quick={"hosts": 20, "requests": 15, "rounds": 2, "warm_up": 10},
    floor=True,
    limit=limit,
    limit_note="the lower of the stand-in's rate and that of two writes a request, all sent at once",
)
