# SPDX-License-Identifier: Apache-2.0
"""The work of `burst` again and again, with and without people who look at the launcher's web pages."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.suite.goals import Bound
from benchmarks.suite.model import Row, Scenario
from benchmarks.suite.statistics import median, rounded
from benchmarks.support.candidates import OURS, Candidate
from benchmarks.support.counters import Reading
from benchmarks.support.place import Stage, per_request
from benchmarks.support.static_hosts import COSTS, LABEL, LATENCIES, RATE, ReadyHosts, latencies
from benchmarks.support.viewers import viewers
from tests.support.launcher_config import StaticProvider, static_hosts

NAME = "viewers"
WEBAPP = {"webapp": {"listen_address": "127.0.0.1", "port": 0}}


class Side:
    """The runs with so many viewers."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.runs: list[Any] = []
        self.cost = Reading.zero()

    def row(self, name: str, requests: int) -> Row:
        rate = median(requests / (run.last_fulfilled - run.start) for run in self.runs)
        costs = per_request(self.cost, requests * len(self.runs))
        return Row(NAME, f"{self.count} viewers", name, rounded({"rate": rate, **latencies(self.runs), **costs}))


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    if candidate is not OURS:
        return []
    jitter, count = random.Random(3), size["requests"]
    sides = [Side(0), Side(size["viewers"])]
    provider = StaticProvider(static_hosts(size["hosts"], [LABEL]))
    with stage.place(candidate) as place:
        launcher = place.launch(provider, web=True, extra=WEBAPP)
        ready = ReadyHosts(place, provider)
        ready.warm_up(size["warm_up"])
        for _ in range(size["rounds"]):
            for side in sides:
                people = viewers(launcher, side.count, place.directory) if side.count else contextlib.nullcontext()
                with people:
                    for _ in range(size["bursts"]):
                        time.sleep(jitter.uniform(0.1, 1.1))
                        fulfilled: list[Any] = []
                        before = place.read()
                        side.runs.append(ready.load.run(count, LABEL, fulfilled.append))
                        side.cost += place.read() - before
                        for request in fulfilled:
                            ready.load.use_and_return(request)
                        ready.wait_idle()
    return [side.row(candidate.name, count) for side in sides]


SCENARIO = Scenario(
    name=NAME,
    title="80 requests at once, 100 static nodes are ready, and people look at the web pages",
    metrics=(RATE, *LATENCIES, *COSTS),
    goals=(Bound("failed", at_most=0),),
    run=run,
    sizes={"hosts": 100, "requests": 80, "rounds": 4, "bursts": 4, "warm_up": 200, "viewers": 20},
    quick={"hosts": 20, "requests": 15, "rounds": 1, "bursts": 1, "warm_up": 10, "viewers": 3},
)
