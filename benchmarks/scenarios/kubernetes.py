# SPDX-License-Identifier: Apache-2.0
"""Pods on a real control plane of Kubernetes: one at a time, and many at once."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.suite.goals import Bound, TimesReleased
from benchmarks.suite.model import LIMIT, Metric, Row, Scenario, cases
from benchmarks.suite.statistics import rounded
from benchmarks.support.bare_pods import BarePods
from benchmarks.support.candidates import OURS, Candidate
from benchmarks.support.cloud_scenarios import CloudBench
from benchmarks.support.control_plane import LABEL, USER, ControlPlane, KubernetesProvider, control_plane
from benchmarks.support.costs import Costs
from benchmarks.support.counters import Reading
from benchmarks.support.load import Load, Run
from benchmarks.support.place import Place, Stage
from benchmarks.support.simulated_cluster import simulated_cluster
from benchmarks.support.static_hosts import latencies
from tests.support.kubernetes_rig import why_no_rig
from tests.support.wait import wait_for

NAME: Final = "kubernetes"
ONE: Final = "one"
#: Creates of a pod's node: namespace, binding, pod, token secret; and the deletion of the namespace.
LEAST_CALLS: Final = 5.0
#: One after the other: the client's request, the node with its lock, the node as ready, the request as fulfilled.
LEAST_WRITES: Final = 4
#: Until a pod runs on this control plane at the earliest.
START_MS: Final = 200.0
#: For a burst to be gone: the control plane deletes namespaces one after the other.
GONE_SECONDS: Final = 600.0
BURST: Final = "kubernetes-burst"
#: Times of the simulated cluster.
BURST_SETTINGS: Final = {"start_seconds": [0.2, 0.5], "stop_seconds": [0.1, 0.2], "namespace_seconds": [0.1, 0.3]}
BURST_METRICS: Final = ("p50_ms", "p99_ms", "rate", "cpu_ms", "calls", "memory_mib", "double_nodes", "failed")


def run(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    rows = []
    with stage.place(candidate) as place, control_plane(place.directory) as cluster:
        provider = KubernetesProvider()
        place.launch([provider])
        measured = _Measured(place, cluster, provider)
        measured.warm_up(size["warm_up"])
        rows.append(Row(NAME, ONE, candidate.name, measured.one_by_one(size["nodes"])))
        rows += [Row(NAME, str(count), candidate.name, measured.burst(count)) for count in size["at_once"]]
        if candidate == OURS:
            rows += [_limit_of_burst(cluster, count) for count in size["at_once"]]
    return rows


def _limit_of_burst(cluster: ControlPlane, count: int) -> Row:
    """How many the control plane makes a second when nobody but a loop of calls asks for them."""
    bare = BarePods(cluster.kubeconfig, USER)
    try:
        rate = count / bare.make(count)
    finally:
        bare.close()
    return Row(NAME, str(count), LIMIT, rounded({"calls": LEAST_CALLS, "rate": rate}))


class _Measured:
    """A launcher with its load."""

    def __init__(self, place: Place, cluster: ControlPlane, provider: KubernetesProvider) -> None:
        self._place = place
        self._cluster = cluster
        self._pool = provider.pool
        self._load = Load(place.client, place.progress)

    def warm_up(self, count: int) -> None:
        self._load.run(count, LABEL, self._load.use_and_return)
        self._wait_gone()

    def one_by_one(self, count: int) -> dict[str, float]:
        """The next one comes at a moment that no polling loop favours; the one before may still be going."""
        jitter = random.Random(4)
        before, calls = self._place.read(), self._cluster.calls().total()
        runs = []
        for _ in range(count):
            time.sleep(jitter.uniform(0.1, 1.1))
            runs.append(self._load.run(1, LABEL, self._load.use_and_return))
        self._wait_gone()
        return self._values(runs, count, before, calls)

    def burst(self, count: int) -> dict[str, float]:
        fulfilled: list[Any] = []
        before, calls = self._place.read(), self._cluster.calls().total()
        run_ = self._load.run(count, LABEL, fulfilled.append)
        for request in fulfilled:
            self._load.use_and_return(request)
        self._wait_gone()
        rate = count / (run_.last_fulfilled - run_.start)
        return self._values([run_], count, before, calls) | rounded({"rate": rate})

    def _wait_gone(self) -> None:
        """Until neither ZooKeeper nor the cluster has any of the nodes."""
        wait_for("no node is left", lambda: not self._place.znodes.nodes(), GONE_SECONDS)
        self._cluster.wait_empty(self._pool, GONE_SECONDS)

    def _values(self, runs: list[Run], count: int, before: Reading, calls: int) -> dict[str, float]:
        cost = self._place.read() - before
        own_calls = self._cluster.calls().total() - calls
        costs = {"cpu_ms": cost.cpu_seconds * 1000 / count, "calls": own_calls / count}
        return rounded({**latencies(runs), **costs, "memory_mib": self._place.memory_mib()})


def limit(costs: Costs, rows: Sequence[Row]) -> list[Row]:
    if ONE not in cases(rows):
        return []
    least_ms = START_MS + LEAST_WRITES * costs.write_ms
    return [Row(NAME, ONE, LIMIT, rounded({"calls": LEAST_CALLS, "p50_ms": least_ms}))]


def run_burst(stage: Stage, candidate: Candidate, size: Mapping[str, Any]) -> list[Row]:
    """Pods, then empty namespaces, on a simulated cluster that starts and ends them at once."""
    rows = []
    room = {"cpu": "2000", "memory": "1Ti", "pods": "2000"}
    kinds = [("pod", size["pods"])]
    if candidate == OURS:
        # The released one has a thread and polls for each node: its pods are measured, so that the run ends in minutes.
        kinds.append(("namespace", size["namespaces"]))
    for kind, count in kinds:
        directory = Path(tempfile.mkdtemp(prefix="cluster-", dir=stage.directory))
        provider = KubernetesProvider(kind=kind)
        with simulated_cluster(directory, BURST_SETTINGS) as cloud, stage.place(candidate) as place:
            cloud.call("POST", "add-node", {"name": "large", "capacity": room})
            place.launch([provider])
            bench = CloudBench(candidate.name, "", place.workplace, place.client, cloud, "node_places")
            bench.warm_up()
            found = bench.burst(count).as_dict()
        values = {name: found[name] for name in BURST_METRICS}
        rows.append(Row(BURST, f"{count} {kind}s", candidate.name, rounded(values)))
    return rows


METRICS: Final = (
    Metric("p50_ms", "p50", "ms", plot=True),
    Metric("p99_ms", "p99", "ms"),
    Metric("rate", "nodes/s", more_is_better=True, plot=True),
    Metric("cpu_ms", "CPU", "ms", plot=True),
    Metric("calls", "API calls", plot=True),
    Metric("memory_mib", "memory", "MiB"),
    Metric("failed", "failed", more_is_better=None),
)

BURST_SCENARIO = Scenario(
    name=BURST,
    title="Kubernetes, 300 pods and 1,000 namespaces at once on a simulated cluster",
    metrics=(*METRICS[:-1], Metric("double_nodes", "nodes with two namespaces", more_is_better=None), METRICS[-1]),
    goals=(
        TimesReleased("cpu_ms", 4),
        Bound("calls", at_most=5.1),
        Bound("failed", at_most=0),
        Bound("double_nodes", at_most=0),
    ),
    run=run_burst,
    sizes={"pods": 300, "namespaces": 1000},
    quick={"pods": 30, "namespaces": 50},
)

SCENARIO = Scenario(
    name=NAME,
    title="Kubernetes, pods in namespaces of their own on a real control plane: one at a time, 100 at once",
    metrics=METRICS,
    goals=(
        TimesReleased("p50_ms", 5, case=ONE),
        TimesReleased("rate", 5, case="100"),
        TimesReleased("cpu_ms", 4),
        Bound("failed", at_most=0),
    ),
    run=run,
    sizes={"nodes": 15, "at_once": (100,), "warm_up": 3},
    quick={"nodes": 3, "at_once": (10,), "warm_up": 1},
    limit=limit,
    limit_note=f"four writes one after the other and a pod's start of {START_MS:g} ms; four creates and one deletion; "
    "of many at once what the control plane makes for a loop of calls",
    missing=why_no_rig,
)

SCENARIOS = (SCENARIO, BURST_SCENARIO)
