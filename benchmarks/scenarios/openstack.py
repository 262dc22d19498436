# SPDX-License-Identifier: Apache-2.0
"""Nodes of a simulated OpenStack: one at a time, many at once, and at quota. `benchmarks.openstack` measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.openstack import BOOT_SECONDS, Case, Measurement, parse_arguments
from benchmarks.suite.goals import Bound, TimesReleased
from benchmarks.suite.model import LIMIT, Metric, Row, Scenario, cases
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.cloud_scenarios import CloudResult
from benchmarks.support.costs import Costs
from benchmarks.support.place import Stage

ONE, BURST, QUOTA = "cloud-one", "cloud-burst", "cloud-quota"
#: The smallest part of a node's life in the cloud: create, and delete; one list serves all.
LEAST_CALLS = 2.0

LATENCIES = (Metric("p50_ms", "p50", "ms", plot=True), Metric("p99_ms", "p99", "ms"))
RATE = Metric("rate", "nodes/s", more_is_better=True, plot=True)
SHARE = Metric("share", "of the possible", "%", more_is_better=True, plot=True)
COSTS = (
    Metric("cpu_ms", "CPU", "ms", plot=True),
    Metric("received", "packets"),
    Metric("calls", "cloud calls", plot=True),
    Metric("memory_mib", "memory", "MiB"),
    Metric("double_nodes", "nodes with two servers", more_is_better=None),
    Metric("failed", "failed", more_is_better=None),
)
CORRECT = (Bound("failed", at_most=0), Bound("double_nodes", at_most=0))


def run_one(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    results = _measure(stage, candidate, Case("open", ("single",)), ["--single", str(size["nodes"])])
    return [_row(ONE, "", result) for result in results]


def run_burst(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    rows = []
    for count in size["nodes"]:
        results = _measure(stage, candidate, Case("open", ("burst",)), ["--burst", str(count)])
        rows += [_row(BURST, str(count), result) for result in results]
    return rows


def run_quota(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    waiting = [str(count) for count in size["waiting"]]
    arguments = ["--waiting", *waiting, "--servers", str(size["servers"]), "--window", str(size["seconds"])]
    results = _measure(stage, candidate, Case("max-servers", ("at_quota",), limited=True), arguments)
    return [_row(QUOTA, case, result) for case, result in zip(waiting, results, strict=True)]


def _measure(stage: Stage, candidate: Candidate, case: Case, arguments: list[str]) -> list[CloudResult]:
    options = parse_arguments(arguments)
    # Host keys are not scanned in these cases: no sshd is needed.
    return Measurement(candidate, case, stage.directory, stage.zookeeper, 22, options).run()


def _row(scenario: str, case: str, result: CloudResult) -> Row:
    keys = ("p50_ms", "p99_ms", "rate", "share", *(metric.key for metric in COSTS))
    found = result.as_dict()
    return Row(scenario, case, result.candidate, rounded({key: found[key] for key in keys}))


def limit_one(costs: Costs, _rows: Sequence[Row]) -> list[Row]:
    return [Row(ONE, "", LIMIT, rounded({"p50_ms": LEAST_WRITES * costs.write_ms, "calls": LEAST_CALLS}))]


def limit_burst(costs: Costs, rows: Sequence[Row]) -> list[Row]:
    limits = []
    for case in cases(rows):
        least_seconds = int(case) / costs.requests_per_second + BOOT_SECONDS[1]
        limits.append(Row(BURST, case, LIMIT, rounded({"rate": int(case) / least_seconds, "calls": LEAST_CALLS})))
    return limits


def limit_quota(_costs: Costs, rows: Sequence[Row]) -> list[Row]:
    return [Row(QUOTA, case, LIMIT, {"share": 100.0, "calls": LEAST_CALLS}) for case in cases(rows)]


#: One after the other: the client's request, the node with its lock, the node as ready, the request as fulfilled.
LEAST_WRITES = 4

SCENARIOS = (
    Scenario(
        name=ONE,
        title="OpenStack, one node at a time: what comes on top of the boot",
        metrics=(*LATENCIES, *COSTS),
        goals=(Bound("p50_ms", at_most=800), *CORRECT),
        run=run_one,
        sizes={"nodes": 15},
        quick={"nodes": 3},
        limit=limit_one,
        limit_note="four writes one after the other, no call that tells that the server is up; create and delete",
    ),
    Scenario(
        name=BURST,
        title="OpenStack, 300 and 1000 nodes at once",
        metrics=(RATE, *LATENCIES, *COSTS),
        goals=(TimesReleased("rate", 4), TimesReleased("cpu_ms", 4), Bound("calls", at_most=2.5), *CORRECT),
        run=run_burst,
        sizes={"nodes": (300, 1000)},
        quick={"nodes": (20,)},
        limit=limit_burst,
        limit_note=f"what the load needs to submit, and the longest boot, {BOOT_SECONDS[1]:g} s; create and delete",
    ),
    Scenario(
        name=QUOTA,
        title="OpenStack at quota: 20 servers, jobs of 5 s, 200 and 1000 requests waiting",
        metrics=(SHARE, RATE, *COSTS),
        goals=(Bound("share", at_least=90), *CORRECT),
        run=run_quota,
        sizes={"servers": 20, "waiting": (200, 1000), "seconds": 90},
        quick={"servers": 10, "waiting": (30,), "seconds": 15},
        limit=limit_quota,
        limit_note="servers that are always in their cycle of boot, job and deletion; create and delete",
    ),
)
