# SPDX-License-Identifier: Apache-2.0
"""Many nodes at once in one cloud: what all scenarios with a simulated cloud run, and how they tell it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.suite.goals import Bound
from benchmarks.suite.model import Metric, Row
from benchmarks.suite.statistics import rounded
from benchmarks.support.candidates import Candidate
from benchmarks.support.cloud_scenarios import GONE_SECONDS, CloudBench, CloudResult
from benchmarks.support.place import Stage
from simulators.base.client import AdminClient
from tests.support.launcher_config import Provider

UNTIL_READY: Final = Metric("until_ready_s", "until all are ready", "s", plot=True)
#: No node is lost, and none has two servers.
CORRECT: Final = (Bound("failed", at_most=0), Bound("double_nodes", at_most=0))


def cost_metrics(servers: str) -> tuple[Metric, ...]:
    """What a node costs.

    :param servers: the cloud's word for them.
    """
    return (
        Metric("calls", "cloud calls", plot=True),
        Metric("cpu_ms", "CPU", "ms", plot=True),
        Metric("received", "packets"),
        Metric("memory_mib", "memory", "MiB"),
        Metric("double_nodes", f"nodes with two {servers}", more_is_better=None),
        Metric("failed", "failed", more_is_better=None),
    )


def burst(
    stage: Stage,
    candidate: Candidate,
    cloud: AdminClient,
    providers: Sequence[Provider],
    nodes: int,
    kind: str = "instances",
    gone_seconds: float = GONE_SECONDS,
) -> CloudResult:
    """Starts a launcher, and asks for all nodes at once. Blocks until they are deleted again.

    :param kind: name of servers in the state of the simulator.
    :param gone_seconds: for the deletions.
    """
    with stage.place(candidate) as place:
        place.launch(providers)
        bench = CloudBench(candidate.name, "", place.workplace, place.client, cloud, kind, gone_seconds)
        bench.warm_up()
        result = bench.burst(nodes)
        calls = ", ".join(f"{name} {number}" for name, number in sorted(cloud.state()["calls"].items()))
        stage.progress.step(f"calls of {candidate.name}: {calls}")
    return result


def burst_row(scenario: str, result: CloudResult, key: str = UNTIL_READY.key, boot_seconds: float = 0.0) -> Row:
    """What a burst took and cost.

    :param key: of the seconds until all nodes are ready; ``boot_seconds`` of them do not count.
    """
    assert result.rate is not None
    costs = {metric.key for metric in cost_metrics("")}
    values = {name: value for name, value in result.as_dict().items() if name in costs}
    seconds = result.requests / result.rate - boot_seconds
    return Row(scenario, str(result.requests), result.candidate, rounded({key: seconds, **values}))
