# SPDX-License-Identifier: Apache-2.0
"""Nodes on Google Compute Engine: many at once with the limits of calls that Google documents, on a simulated project.

The released driver cannot be told another address than Google's, and makes two calls a second: it has no part in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.suite.goals import Bound
from benchmarks.suite.model import LIMIT, RELEASED, Metric, Row, Scenario, cases
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.cloud_scenarios import CloudBench
from benchmarks.support.costs import Costs
from benchmarks.support.place import Stage
from benchmarks.support.simulated_gce import gce_provider, simulated_project

BURST = "gce-burst"
#: Seconds that the project takes to boot and to delete an instance, and to answer an order.
BOOT_SECONDS, DELETE_SECONDS, ORDER_SECONDS = (10.0, 15.0), (5.0, 10.0), (0.2, 0.6)

SECONDS = Metric("until_ready_s", "until all are ready", "s", plot=True)
COSTS = (
    Metric("calls", "cloud calls", plot=True),
    Metric("cpu_ms", "CPU", "ms", plot=True),
    Metric("received", "packets"),
    Metric("memory_mib", "memory", "MiB"),
    Metric("double_nodes", "nodes with two instances", more_is_better=None),
    Metric("failed", "failed", more_is_better=None),
)


def run_burst(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    if candidate.name == RELEASED:
        return []
    settings = {
        "boot_seconds": BOOT_SECONDS,
        "delete_seconds": DELETE_SECONDS,
        "latencies": {"instances.insert": ORDER_SECONDS, "instances.delete": ORDER_SECONDS},
        "throttles": True,
    }
    directory = Path(tempfile.mkdtemp(prefix="project-", dir=stage.directory))
    with simulated_project(directory, settings) as (cloud, key_file), stage.place(candidate) as place:
        place.launch([gce_provider(key_file, cloud.url)])
        bench = CloudBench(candidate.name, "", place.workplace, place.client, cloud, "instances")
        bench.warm_up()
        result = bench.burst(size["nodes"])
        calls = ", ".join(f"{name} {number}" for name, number in sorted(cloud.state()["calls"].items()))
        stage.progress.step(f"calls of {candidate.name}: {calls}")
    found = {key: value for key, value in result.as_dict().items() if key in {metric.key for metric in COSTS}}
    assert result.rate is not None
    seconds = size["nodes"] / result.rate
    return [Row(BURST, str(size["nodes"]), result.candidate, rounded({"until_ready_s": seconds, **found}))]


def limit_burst(costs: Costs, rows: Sequence[Row]) -> list[Row]:
    """If the last instance is one of those that boot longest: Google takes 1500 calls of a minute at once."""
    limits = []
    for case in cases(rows):
        seconds = int(case) / costs.requests_per_second + BOOT_SECONDS[1]
        limits.append(Row(BURST, case, LIMIT, rounded({"until_ready_s": seconds, "calls": 2.0})))
    return limits


SCENARIOS = (
    Scenario(
        name=BURST,
        title="Google Compute Engine, 300 instances at once, with the limits of calls that Google documents",
        metrics=(SECONDS, *COSTS),
        goals=(
            Bound("until_ready_s", at_most=1.2 * (ORDER_SECONDS[1] + BOOT_SECONDS[1])),
            Bound("calls", at_most=2.5),
            Bound("failed", at_most=0),
            Bound("double_nodes", at_most=0),
        ),
        run=run_burst,
        sizes={"nodes": 300},
        quick={"nodes": 40},
        limit=limit_burst,
        limit_note="a call that makes an instance, and one that deletes it; the longest boot",
    ),
)
