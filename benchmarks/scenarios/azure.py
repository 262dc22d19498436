# SPDX-License-Identifier: Apache-2.0
"""Nodes on Azure: many at once with the limits of calls that Azure documents, on a simulated subscription; and what a
node costs beside the released launcher.

The released driver knows the addresses of the public cloud only, and makes one call a second: it has no part in the
first. The second measures both with their defaults, and both with ``rate: 20``. Both use TLS: the released one by a
proxy that stands for the public cloud.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.suite.goals import Bound, TimesReleased
from benchmarks.suite.model import LIMIT, RELEASED, Row, Scenario, cases
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.cloud_burst import CORRECT, UNTIL_READY, burst, burst_row, cost_metrics
from benchmarks.support.costs import Costs
from benchmarks.support.place import Stage
from benchmarks.support.public_azure import HOSTS, AzureTranslation, write_public_auth_file
from benchmarks.support.public_cloud import public_cloud
from benchmarks.support.simulated_azure import AzureProvider, simulated_subscription

BURST, COSTS = "azure-burst", "azure-costs"
#: Calls a second of both; None = the default: for the released one a call a second, for ours what Azure documents.
RATES = (None, 20)
#: Seconds that the subscription takes to boot and to delete a VM, and to answer an order.
BOOT_SECONDS, DELETE_SECONDS, ORDER_SECONDS = (10.0, 15.0), (3.0, 6.0), (0.5, 1.5)
#: Azure takes 200 calls that write at once and then 10 a second.
WRITES_AT_ONCE, WRITES_A_SECOND = 200, 10

METRICS = (UNTIL_READY, *cost_metrics("VMs"))


def run_burst(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    if candidate.name == RELEASED:
        return []
    settings = {
        "boot_seconds": BOOT_SECONDS,
        "delete_seconds": DELETE_SECONDS,
        "latencies": {"virtualMachines.put": ORDER_SECONDS, "virtualMachines.delete": ORDER_SECONDS},
        "throttles": True,
    }
    directory = Path(tempfile.mkdtemp(prefix="subscription-", dir=stage.directory))
    with simulated_subscription(directory, settings) as (cloud, auth_path):
        result = burst(stage, candidate, cloud, [AzureProvider(auth_path)], size["nodes"], "vms")
    return [burst_row(BURST, result)]


def run_costs(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    return [_costs(stage, candidate, size["nodes"], rate) for rate in RATES]


def _costs(stage: Stage, candidate: Candidate, nodes: int, rate: int | None) -> Row:
    settings = {"boot_seconds": BOOT_SECONDS, "delete_seconds": DELETE_SECONDS}
    directory = Path(tempfile.mkdtemp(prefix="subscription-", dir=stage.directory))
    with (
        simulated_subscription(directory, settings) as (cloud, private),
        public_cloud(directory, cloud.url, HOSTS, AzureTranslation()) as url,
    ):
        auth_path = write_public_auth_file(directory / "public.json", private, url)
        result = burst(stage, candidate, cloud, [AzureProvider(auth_path, rate=rate)], nodes, "vms")
    return dataclasses.replace(
        burst_row(COSTS, result), case=f"{nodes}, {'defaults' if rate is None else f'rate: {rate}'}"
    )


def limit_burst(costs: Costs, rows: Sequence[Row]) -> list[Row]:
    """What the buckets leave, if the last VM is one of those that boot longest; a call that makes a VM, and one that
    deletes it."""
    limits = []
    for case in cases(rows):
        nodes = int(case)
        ordered = max(0.0, (nodes - WRITES_AT_ONCE) / WRITES_A_SECOND)
        seconds = max(ordered, nodes / costs.requests_per_second) + BOOT_SECONDS[1]
        limits.append(Row(BURST, case, LIMIT, rounded({"until_ready_s": seconds, "calls": 2.0})))
    return limits


SCENARIOS = (
    Scenario(
        name=BURST,
        title="Azure, 300 VMs at once, with the limits of calls that Azure documents",
        metrics=METRICS,
        goals=(
            Bound("until_ready_s", at_most=1.2 * (10 + BOOT_SECONDS[1])),
            Bound("calls", at_most=2.5),
            *CORRECT,
        ),
        run=run_burst,
        sizes={"nodes": 300},
        quick={"nodes": 40},
        limit=limit_burst,
        limit_note="200 calls that write, then 10 a second; the longest boot",
    ),
    Scenario(
        name=COSTS,
        title="Azure, what a node costs, both launchers with their defaults and with 20 calls a second",
        metrics=METRICS,
        goals=(TimesReleased("cpu_ms", 4), *CORRECT),
        run=run_costs,
        sizes={"nodes": 60},
        quick={"nodes": 20},
    ),
)
