# SPDX-License-Identifier: Apache-2.0
"""The work of `burst` and `steady` again and again, with and without people who look at the pages of ``nodepool-web``.

Both take turns, and each round is compared with itself: what else the machine does is the same for both.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.suite.goals import Bound
from benchmarks.suite.model import Metric, Row, Scenario
from benchmarks.suite.statistics import median, percent_worse, rounded
from benchmarks.support.candidates import OURS, Candidate
from benchmarks.support.counters import Reading
from benchmarks.support.load import Run
from benchmarks.support.place import Stage, per_request
from benchmarks.support.static_hosts import COSTS, LABEL, LATENCIES, RATE, ReadyHosts, latencies
from benchmarks.support.viewers import viewers
from tests.support.launcher_config import StaticProvider, static_hosts
from tests.support.serving_process import ServingProcess

NAME = "viewers"
WEBAPP = {"webapp": {"listen_address": "127.0.0.1", "port": 0}}
#: Key of a figure -> that of how much worse it is with viewers.
WORSE: Final = {"rate": "rate_worse", "p50_ms": "p50_worse", "p99_ms": "p99_worse"}
#: What a launcher may lose by viewers.
MOST_PERCENT: Final = 5


class Side:
    """The runs of one kind with so many viewers."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.runs: list[Run] = []
        self.cost = Reading.zero()
        #: Figures of each round.
        self.rounds: list[Mapping[str, float | None]] = []

    def row(self, name: str, requests: int, kind: str = "", more: Mapping[str, float | None] | None = None) -> Row:
        """:param requests: of each run. ``more``: further figures."""
        costs = per_request(self.cost, requests * len(self.runs))
        case = ", ".join([*([kind] if kind else []), f"{self.count} viewers"])
        return Row(NAME, case, name, rounded({**figures(self.runs), **costs, **(more or {})}))


def figures(runs: Sequence[Run]) -> dict[str, float | None]:
    """Rate and latencies of some runs."""
    rate = median(len(run.fulfilled) / (run.last_fulfilled - run.start) for run in runs)
    return {"rate": rate, **latencies(list(runs))}


def worse(alone: Side, watched: Side) -> dict[str, float | None]:
    """How much worse figures are with viewers, in percent: the middle one of all rounds; below 0 they are better."""
    found: dict[str, float | None] = {}
    for key, name in WORSE.items():
        more_is_better = key == "rate"
        pairs = [(before[key], after[key]) for before, after in zip(alone.rounds, watched.rounds, strict=True)]
        found[name] = percent_worse([(a, b) for a, b in pairs if a and b], more_is_better=more_is_better)
    return found


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    if candidate is not OURS:
        return []
    jitter = random.Random(3)
    numbers = {"burst": size["requests"], "steady": size["steady"]}
    sides = {kind: (Side(0), Side(size["viewers"])) for kind in numbers}
    provider = StaticProvider(static_hosts(size["hosts"], [LABEL]))
    with stage.place(candidate) as place, contextlib.ExitStack() as stack:
        launcher = place.launch(provider, extra=WEBAPP)
        web = ServingProcess("nodepool.cmd.web", launcher.config_path)
        stack.callback(web.stop)
        web.start()
        ready = ReadyHosts(place, provider)
        ready.warm_up(size["warm_up"])

        def bursts(side: Side) -> list[Run]:
            return [_burst(ready, side, numbers["burst"], jitter) for _ in range(size["bursts"])]

        for number in range(size["rounds"]):
            # Each is the first one as often as the other.
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                burst, steady = sides["burst"][which], sides["steady"][which]
                people = viewers(web, burst.count, place.directory) if burst.count else contextlib.nullcontext()
                with people:
                    burst.rounds.append(figures(bursts(burst)))
                    steady.rounds.append(figures([_steady(ready, steady, numbers["steady"])]))
    rows = []
    for kind, (alone, watched) in sides.items():
        rows.append(alone.row(candidate.name, numbers[kind], kind))
        rows.append(watched.row(candidate.name, numbers[kind], kind, worse(alone, watched)))
    return rows


def _burst(ready: ReadyHosts, side: Side, count: int, jitter: random.Random) -> Run:
    """Requests at once, for which nodes are ready. Their nodes come back before this returns, which does not count."""
    time.sleep(jitter.uniform(0.1, 1.1))
    fulfilled: list[Any] = []
    before = ready.place.read()
    found = ready.load.run(count, LABEL, fulfilled.append)
    side.cost += ready.place.read() - before
    side.runs.append(found)
    for request in fulfilled:
        ready.load.use_and_return(request)
    ready.wait_idle()
    return found


def _steady(ready: ReadyHosts, side: Side, count: int) -> Run:
    """More requests at once than there are nodes, each of which is used and returned."""
    before = ready.place.read()
    found = ready.load.run(count, LABEL, ready.load.use_and_return)
    ready.wait_idle()
    side.cost += ready.place.read() - before
    side.runs.append(found)
    return found


SCENARIO = Scenario(
    name=NAME,
    title="80 and 1200 requests at once, 100 static nodes are ready, and people look at the web pages",
    metrics=(
        RATE,
        *LATENCIES,
        Metric("rate_worse", "requests/s, loss", "%", more_is_better=None),
        Metric("p50_worse", "p50, loss", "%", more_is_better=None),
        Metric("p99_worse", "p99, loss", "%", more_is_better=None),
        *COSTS,
    ),
    goals=(
        *(
            Bound(name, at_most=MOST_PERCENT, case=f"{kind}, 20 viewers")
            for kind in ("burst", "steady")
            for name in WORSE.values()
        ),
        Bound("failed", at_most=0),
    ),
    run=run,
    sizes={"hosts": 100, "requests": 80, "steady": 1200, "rounds": 8, "bursts": 4, "warm_up": 200, "viewers": 20},
    quick={"hosts": 20, "requests": 15, "steady": 60, "rounds": 2, "bursts": 1, "warm_up": 10},
)
