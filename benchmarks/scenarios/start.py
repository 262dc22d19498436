# SPDX-License-Identifier: Apache-2.0
"""Starting with a full ZooKeeper: many nodes, many requests that have to wait, and one that could be served."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.suite.goals import Bound
from benchmarks.suite.model import LIMIT, Metric, Row, Scenario
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.costs import Costs
from benchmarks.support.place import Place, Stage
from benchmarks.support.populate import create_nodes, create_requests
from benchmarks.support.simulated_cloud import LABEL, OpenStackProvider, simulated_cloud

NAME = "start"
BUSY = "busy"
#: The released launcher needs minutes.
DEADLINE_SECONDS = 300.0
#: A launcher's memory grows while it looks at everything for the first time.
SETTLE_SECONDS = 10.0


class FullProvider(OpenStackProvider):
    """A pool with ready nodes, and one that is full of nodes on hold and has a queue."""

    def __init__(self, full: int) -> None:
        super().__init__()
        self._full = full

    @property
    def labels(self) -> Sequence[str]:
        return [LABEL, BUSY]

    def as_config(self) -> dict[str, Any]:
        config = super().as_config()
        (pool,) = config["pools"]
        (label,) = pool["labels"]
        config["pools"].append({**pool, "name": BUSY, "max-servers": self._full, "labels": [{**label, "name": BUSY}]})
        return config


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    with stage.place(candidate) as place, simulated_cloud(place.directory, {}):
        half = size["nodes"] // 2
        provider = FullProvider(half)
        place.progress.step(f"  creating {size['nodes']} nodes and {size['requests']} requests")
        create_nodes(place.znodes, half, LABEL, provider=provider.name, pool="main")
        create_nodes(place.znodes, half, BUSY, provider=provider.name, pool=BUSY, state="hold")
        create_requests(place.znodes, size["requests"], BUSY)
        request = place.client.submit([LABEL])
        start = time.monotonic()
        place.launch([provider], wait=False)
        place.progress.step("  starting")
        moment = place.wait_completed(request, DEADLINE_SECONDS)
        values: dict[str, float | None] = {"seconds": moment - start, "serving_cpu_seconds": _cpu(place)}
        time.sleep(SETTLE_SECONDS)
        return [Row(NAME, "", candidate.name, rounded({**values, "memory_mib": place.memory_mib()}))]


def _cpu(place: Place) -> float:
    return place.launchers[0].cpu_seconds()


def limit(costs: Costs, _rows: Sequence[Row]) -> list[Row]:
    reads = (NODES + REQUESTS) / costs.reads_per_second
    return [Row(NAME, "", LIMIT, rounded({"seconds": costs.kazoo_seconds + reads}))]


NODES, REQUESTS = 10_000, 5000
SCENARIO = Scenario(
    name=NAME,
    title=f"Start with {NODES} nodes and {REQUESTS} requests in ZooKeeper",
    metrics=(
        Metric("seconds", "start to first request served", "s", plot=True),
        Metric("serving_cpu_seconds", "CPU until then", "s"),
        Metric("memory_mib", "memory", "MiB", plot=True),
    ),
    goals=(Bound("seconds", at_most=5), Bound("memory_mib", at_most=250)),
    run=run,
    sizes={"nodes": NODES, "requests": REQUESTS},
    quick={"nodes": 500, "requests": 200},
    limit=limit,
    limit_note="an interpreter that imports Kazoo, and one read for each node and request, all sent at once",
)
