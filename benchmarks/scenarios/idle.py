# SPDX-License-Identifier: Apache-2.0
"""A launcher with many ready nodes and nothing to do: what does it cost to wait?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.suite.goals import Bound
from benchmarks.suite.model import Metric, Row, Scenario
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.place import Place, Stage
from benchmarks.support.populate import create_nodes
from benchmarks.support.simulated_cloud import LABEL, OpenStackProvider, simulated_cloud
from benchmarks.support.static_hosts import LABEL as HOST_LABEL
from tests.support.launcher_config import StaticProvider, static_hosts

NAME = "idle"
STATIC, CLOUD = "static hosts", "cloud servers"


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    rows = []
    with stage.place(candidate) as place:
        place.launch(StaticProvider(static_hosts(size["nodes"], [HOST_LABEL])))
        rows.append(_wait(place, STATIC, size))
    with stage.place(candidate) as place, simulated_cloud(place.directory, {}) as cloud:
        provider = OpenStackProvider()
        create_nodes(place.znodes, size["nodes"], LABEL, provider=provider.name, pool="main")
        for number in range(size["nodes"]):
            cloud.add("server", name=f"server-{number}")
        place.launch([provider], wait=False)
        place.workplace.wait_registered(place.launchers[0], 1)
        rows.append(_wait(place, CLOUD, size))
    return rows


def _wait(place: Place, case: str, size: Mapping[str, Any]) -> Row:
    """Lets it settle, and measures for a while."""
    seconds = size["seconds"]
    place.progress.step(f"  {case}: settling, then measuring for {seconds} s")
    time.sleep(size["settle"])
    before, start = place.read(), time.monotonic()
    time.sleep(seconds)
    cost, passed = place.read() - before, time.monotonic() - start
    packets = cost.launcher.received
    values = {"cpu_percent": 100 * cost.cpu_seconds / passed, "packets_per_second": packets / passed}
    return Row(NAME, case, place.candidate.name, rounded({**values, "memory_mib": place.memory_mib()}))


SCENARIO = Scenario(
    name=NAME,
    title="Idle, 1000 ready nodes",
    metrics=(
        Metric("cpu_percent", "CPU", "% of a core", plot=True),
        Metric("packets_per_second", "packets/s", plot=True),
        Metric("memory_mib", "memory", "MiB"),
    ),
    goals=(Bound("cpu_percent", at_most=1), Bound("packets_per_second", at_most=5)),
    run=run,
    sizes={"nodes": 1000, "settle": 15, "seconds": 60},
    quick={"nodes": 50, "settle": 5, "seconds": 10},
)
