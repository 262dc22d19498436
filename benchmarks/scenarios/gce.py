# SPDX-License-Identifier: Apache-2.0
"""Nodes on Google Compute Engine: many at once with the limits of calls that Google documents, on a simulated project;
and what a node costs beside the released launcher.

The released driver cannot be told another address than Google's, and makes two calls a second: it has no part in the
first. In the second both have ``rate: 20``, and use TLS: the released one by a proxy that stands for Google.
"""

from __future__ import annotations

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
from benchmarks.support.simulated_gce import gce_provider, public_project, simulated_project

BURST, COSTS_NAME = "gce-burst", "gce-costs"
#: Calls a second of both.
RATE = 20
#: Seconds that the project takes to boot and to delete an instance, and to answer an order.
BOOT_SECONDS, DELETE_SECONDS, ORDER_SECONDS = (10.0, 15.0), (5.0, 10.0), (0.2, 0.6)


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
    with simulated_project(directory, settings) as (cloud, key_file):
        result = burst(stage, candidate, cloud, [gce_provider((key_file, cloud.url))], size["nodes"])
    return [burst_row(BURST, result)]


def run_costs(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    settings = {"boot_seconds": BOOT_SECONDS, "delete_seconds": DELETE_SECONDS}
    rows = []
    for nodes in size["nodes"]:
        directory = Path(tempfile.mkdtemp(prefix="project-", dir=stage.directory))
        with (
            simulated_project(directory, settings) as (cloud, key_file),
            public_project(directory, cloud.url, key_file) as url,
        ):
            place = None if candidate.name == RELEASED else (key_file, url)
            result = burst(stage, candidate, cloud, [gce_provider(place, RATE)], nodes)
        rows.append(burst_row(COSTS_NAME, result))
    return rows


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
        metrics=(UNTIL_READY, *cost_metrics("instances")),
        goals=(
            Bound("until_ready_s", at_most=1.2 * (ORDER_SECONDS[1] + BOOT_SECONDS[1])),
            Bound("calls", at_most=2.5),
            *CORRECT,
        ),
        run=run_burst,
        sizes={"nodes": 300},
        quick={"nodes": 40},
        limit=limit_burst,
        limit_note="a call that makes an instance, and one that deletes it; the longest boot",
    ),
    Scenario(
        name=COSTS_NAME,
        title="Google Compute Engine, what a node costs, both launchers with 20 calls a second",
        metrics=(UNTIL_READY, *cost_metrics("instances")),
        goals=(TimesReleased("cpu_ms", 4), *CORRECT),
        run=run_costs,
        sizes={"nodes": [60, 300]},
        quick={"nodes": [20]},
    ),
)
