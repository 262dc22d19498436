# SPDX-License-Identifier: Apache-2.0
"""One request at a time while nodes are ready, at moments that no polling loop favours."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.suite.goals import Bound, TimesReleased
from benchmarks.suite.model import LIMIT, Row, Scenario
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.costs import Costs
from benchmarks.support.place import Stage, per_request
from benchmarks.support.static_hosts import COSTS, LABEL, LATENCIES, latencies, ready_hosts

NAME = "single"


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    jitter = random.Random(1)
    runs = []
    with stage.place(candidate) as place, ready_hosts(place, size["hosts"], size["warm_up"]) as ready:
        before = place.read()
        for _ in range(size["requests"]):
            time.sleep(jitter.uniform(0.1, 1.1))
            runs.append(ready.load.run(1, LABEL, ready.load.use_and_return))
        ready.wait_idle()
        cost = place.read() - before
    return [Row(NAME, "", candidate.name, rounded({**latencies(runs), **per_request(cost, len(runs))}))]


def limit(costs: Costs, _rows: Sequence[Row]) -> list[Row]:
    return [Row(NAME, "", LIMIT, rounded({"p50_ms": 2 * costs.write_ms}))]


SCENARIO = Scenario(
    name=NAME,
    title="One request, a static node is ready",
    metrics=(*LATENCIES, *COSTS),
    goals=(TimesReleased("p50_ms", 20), Bound("p50_ms", at_most=40), Bound("p99_ms", at_most=100)),
    run=run,
    sizes={"hosts": 100, "requests": 40, "warm_up": 200},
    quick={"hosts": 10, "requests": 5, "warm_up": 10},
    limit=limit,
    limit_note="two writes one after the other: the client's request, the launcher's answer",
)
