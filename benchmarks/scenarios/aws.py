# SPDX-License-Identifier: Apache-2.0
"""Nodes on AWS: many at once with the limits that AWS documents, on the simulated region; and CPU and calls on moto.

Both candidates have the driver's defaults (``rate: 2``). moto runs instances at once, takes any number of calls, and
makes one instance where a call wants several: it says what a node costs, not how fast AWS gives it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.suite.goals import Bound, TimesReleased
from benchmarks.suite.model import LIMIT, Metric, Row, Scenario, cases
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.cloud_burst import CORRECT, burst, burst_row, cost_metrics
from benchmarks.support.costs import Costs
from benchmarks.support.place import Stage
from benchmarks.support.simulated_aws import AwsProvider, moto_region, simulated_region

BURST, MOTO = "aws-burst", "aws-moto"
#: Seconds that the region takes to boot and to end an instance.
BOOT_SECONDS, END_SECONDS = (1.0, 3.0), (0.5, 1.5)
#: AWS takes 5 calls of RunInstances at once and then 2 a second; a call makes up to 20 instances here.
CALLS_AT_ONCE, CALLS_A_SECOND, NODES_A_CALL = 5, 2, 20

SECONDS = Metric("over_boot_s", "over the longest boot", "s", plot=True)
METRICS = (SECONDS, *cost_metrics("instances"))


def run_burst(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    """With the buckets that AWS documents."""
    settings = {"boot_seconds": BOOT_SECONDS, "end_seconds": END_SECONDS, "throttles": True}
    directory = Path(tempfile.mkdtemp(prefix="region-", dir=stage.directory))
    with simulated_region(directory, settings) as cloud:
        result = burst(stage, candidate, cloud, [AwsProvider()], size["nodes"])
    return [burst_row(BURST, result, SECONDS.key, BOOT_SECONDS[1])]


def run_moto(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    directory = Path(tempfile.mkdtemp(prefix="moto-", dir=stage.directory))
    with moto_region(directory) as (cloud, image):
        result = burst(stage, candidate, cloud, [AwsProvider(image)], size["nodes"])
    return [burst_row(MOTO, result, SECONDS.key)]


def limit_burst(costs: Costs, rows: Sequence[Row]) -> list[Row]:
    """What the buckets of AWS leave: the nodes that the first calls do not make need calls of 20."""
    limits = []
    for case in cases(rows):
        nodes = int(case)
        more = max(0, -(-(nodes - CALLS_AT_ONCE) // NODES_A_CALL))
        seconds = max(more / CALLS_A_SECOND, nodes / costs.requests_per_second)
        calls = (CALLS_AT_ONCE + more + nodes) / nodes
        limits.append(Row(BURST, case, LIMIT, rounded({"over_boot_s": seconds, "calls": calls})))
    return limits


SCENARIOS = (
    Scenario(
        name=BURST,
        title="AWS, 300 nodes at once, with the limits of calls that AWS documents",
        metrics=METRICS,
        goals=(Bound("over_boot_s", at_most=12), Bound("calls", at_most=2), TimesReleased("cpu_ms", 2), *CORRECT),
        run=run_burst,
        sizes={"nodes": 300},
        quick={"nodes": 40},
        limit=limit_burst,
        limit_note="5 calls of RunInstances, then 2 a second for 20 nodes each, and a call of CreateTags for each node",
    ),
    Scenario(
        name=MOTO,
        title="AWS, nodes on moto: CPU and calls of a node",
        metrics=METRICS,
        goals=(TimesReleased("cpu_ms", 1.5), *CORRECT),
        run=run_moto,
        sizes={"nodes": 60},
        quick={"nodes": 10},
    ),
)
