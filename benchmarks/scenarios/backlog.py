# SPDX-License-Identifier: Apache-2.0
"""A busy label: few hosts, short jobs, and a queue of requests that never gets shorter."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import yaml

from benchmarks.suite.goals import Growth
from benchmarks.suite.model import LIMIT, OURS, Row, Scenario
from benchmarks.suite.statistics import rounded
from benchmarks.support.backlog import Backlog
from benchmarks.support.candidates import Candidate
from benchmarks.support.costs import Costs
from benchmarks.support.place import Place, Stage, per_request
from benchmarks.support.static_hosts import COSTS, LABEL, RATE, ready_hosts
from tests.support.wait import wait_for

NAME = "backlog"
#: Order of service -> keys of the configuration.
CASES: Final[Mapping[str, Mapping[str, Any]]] = {
    "age": {},
    "shares": {"tenant-shares": [{"tenant-name": "tenant1", "weight": 2}]},
}


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    rows = []
    with stage.place(candidate) as place, ready_hosts(place, size["hosts"], size["warm_up"]):
        queue = Backlog(place.client, LABEL, 0, size["hold_seconds"])
        queue.start()
        try:
            waiting = 0
            for length in size["lengths"]:
                place.progress.step(f"  {length} waiting")
                queue.grow(length - waiting)
                waiting = length
                rows.append(_measure(place, queue, length, size))
        finally:
            queue.stop()
    return rows


def run_tenants(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    """The longest queue, of many tenants, by age and with shares, in turn: the launcher reloads its configuration."""
    if candidate.name != OURS:
        return []
    found: dict[str, list[Row]] = {case: [] for case in CASES}
    with stage.place(candidate) as place, ready_hosts(place, size["hosts"], size["warm_up"]):
        queue = Backlog(place.client, LABEL, 0, size["hold_seconds"], size["tenants"])
        queue.start()
        try:
            length, config = size["lengths"][-1], place.launchers[0].config_path
            settings = yaml.safe_load(config.read_text(encoding="utf-8"))
            place.progress.step(f"  {length} waiting")
            queue.fill(place.znodes, length)
            for turn, case in itertools.product(range(size["turns"]), CASES):
                place.progress.step(f"  {case}, turn {turn + 1}")
                config.write_text(yaml.safe_dump({**settings, **CASES[case]}), encoding="utf-8")
                found[case].append(_measure(place, queue, length, size))
        finally:
            # To cancel what waits would take as long as to submit it; it ends with the place.
            queue.stop(cancel=False)
    return [_mean(case, rows) for case, rows in found.items()]


def _mean(case: str, rows: Sequence[Row]) -> Row:
    values = {key: sum(row.values[key] for row in rows) / len(rows) for key in rows[0].values}
    return Row(TENANTS.name, case, OURS, rounded(values))


def _measure(place: Place, queue: Backlog, length: int, size: Mapping[str, Any]) -> Row:
    """Until so many jobs have ended, but not for ever: the released launcher may stand still."""
    # What was served while the queue grew is replaced after it grew.
    least: int = min(length - size["hosts"], length * 19 // 20)
    wait_for(f"{length} wait", lambda: queue.waiting >= least, size["grow_seconds"])
    time.sleep(size["settle"])
    deadline = time.monotonic() + size["seconds"]
    wanted: int = size["served"]
    before, start, first = place.read(), time.monotonic(), len(queue.ended)

    def over() -> bool:
        done: int = len(queue.ended) - first
        place.progress.count(min(done, wanted), wanted, "jobs")
        return done >= wanted or time.monotonic() > deadline

    wait_for("jobs end", over, size["seconds"] + 60)
    cost, passed, served = place.read() - before, time.monotonic() - start, len(queue.ended) - first
    values: dict[str, float | None] = {"rate": served / passed, "failed": queue.failed}
    if served:
        values |= per_request(cost, served)
    return Row(NAME, str(length), place.candidate.name, rounded(values))


def limit(_costs: Costs, rows: Sequence[Row]) -> list[Row]:
    hosts, hold = SCENARIO.sizes["hosts"], SCENARIO.sizes["hold_seconds"]
    return [Row(NAME, case, LIMIT, {"rate": hosts / hold}) for case in dict.fromkeys(row.case for row in rows)]


SCENARIO = Scenario(
    name=NAME,
    title="Backlog of waiting requests for a busy label: 20 static hosts, jobs of 0.2 s",
    metrics=(RATE, *COSTS),
    goals=(Growth("cpu_ms", "100", "10000", 1.3), Growth("cpu_ms", "100", "20000", 1.2)),
    run=run,
    sizes={
        "hosts": 20,
        "hold_seconds": 0.2,
        "warm_up": 100,
        "lengths": (100, 1000, 10_000, 20_000),
        "grow_seconds": 300,
        "settle": 5,
        "served": 1000,
        "seconds": 60,
    },
    quick={"warm_up": 10, "lengths": (20, 100), "settle": 1, "served": 50, "seconds": 20},
    limit=limit,
    limit_note="hosts that are never free",
    series=True,
)

TENANTS = Scenario(
    name=f"{NAME}-tenants",
    title="The same queue of 200 tenants, served by age and with shares",
    metrics=(RATE, *COSTS),
    goals=(Growth("cpu_ms", "age", "shares", 1.05),),
    run=run_tenants,
    sizes={**SCENARIO.sizes, "tenants": 200, "turns": 2, "seconds": 30},
    quick={**SCENARIO.quick, "turns": 1},
)
