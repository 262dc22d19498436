# SPDX-License-Identifier: Apache-2.0
"""Nodes on IBM VPC in a simulated region: what one costs, with and without a floating IP, at 20 calls a second.

IBM does not document how many calls it takes. The released driver reads the address of an interface where the API had
it until March 2022: its client of IBM is of that time, and asks for the version of the API of that time. It makes a
floating IP for each node.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.suite.goals import Bound, TimesReleased
from benchmarks.suite.model import LIMIT, Row, Scenario, cases
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.cloud_burst import CORRECT, UNTIL_READY, burst, burst_row, cost_metrics
from benchmarks.support.costs import Costs
from benchmarks.support.place import Stage
from benchmarks.support.simulated_ibmvpc import ibmvpc_provider, simulated_ibm_cloud

PLAIN, ADDRESSES = "ibmvpc", "ibmvpc-floating-ips"
#: Calls a second.
RATE = 20
#: Seconds that the region takes to boot and to delete an instance, and to answer an order.
BOOT_SECONDS, DELETE_SECONDS, ORDER_SECONDS = (10.0, 15.0), (3.0, 6.0), (0.2, 0.6)


def run(scenario: str, addresses: bool, stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    settings = {
        "boot_seconds": BOOT_SECONDS,
        "delete_seconds": DELETE_SECONDS,
        "latencies": {"vpc.create_*": ORDER_SECONDS, "vpc.delete_*": ORDER_SECONDS},
    }
    directory = Path(tempfile.mkdtemp(prefix="region-", dir=stage.directory))
    with simulated_ibm_cloud(directory, settings) as (cloud, credentials):
        provider = ibmvpc_provider(credentials, RATE, addresses, size["nodes"])
        result = burst(stage, candidate, cloud, [provider], size["nodes"])
    return [burst_row(scenario, result)]


def limit(scenario: str, calls: float, costs: Costs, rows: Sequence[Row]) -> list[Row]:
    """If the last instance is one of those that boot longest, and the rate is kept."""
    limits = []
    for case in cases(rows):
        seconds = int(case) / min(RATE, costs.requests_per_second) + BOOT_SECONDS[1]
        limits.append(Row(scenario, case, LIMIT, rounded({"until_ready_s": seconds, "calls": calls})))
    return limits


def _scenario(name: str, title: str, addresses: bool, least: float, most: float, note: str) -> Scenario:
    return Scenario(
        name=name,
        title=title,
        metrics=(UNTIL_READY, *cost_metrics("instances")),
        goals=(Bound("calls", at_most=most), TimesReleased("cpu_ms", 1.5), *CORRECT),
        run=partial(run, name, addresses),
        sizes={"nodes": 100},
        quick={"nodes": 20},
        limit=partial(limit, name, least),
        limit_note=note,
    )


SCENARIOS = (
    _scenario(
        PLAIN,
        "IBM VPC, 100 instances at once, 20 calls a second",
        addresses=False,
        least=2.0,
        most=2.5,
        note="a call that makes an instance, and one that deletes it; the longest boot",
    ),
    _scenario(
        ADDRESSES,
        "IBM VPC, 100 instances with floating IPs at once, 20 calls a second",
        addresses=True,
        least=3.0,
        most=3.5,
        note="calls that make an instance, bind its floating IP and delete it; the longest boot",
    ),
)
