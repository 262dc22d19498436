# SPDX-License-Identifier: Apache-2.0
"""A launcher with ready static hosts, and the load on it: what the scenarios with one request a node share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.suite.model import Metric
from benchmarks.suite.statistics import percentile
from benchmarks.support.load import Load, Run
from benchmarks.support.place import Place
from tests.support.launcher_config import StaticProvider, static_hosts
from tests.support.wait import wait_for

LABEL: Final = "small"
#: A look reads every node; it should not disturb.
LOOK_SECONDS: Final = 0.5

LATENCIES: Final = (Metric("p50_ms", "p50", "ms", plot=True), Metric("p99_ms", "p99", "ms"))
RATE: Final = Metric("rate", "requests/s", more_is_better=True, plot=True)
COSTS: Final = (
    Metric("cpu_ms", "CPU", "ms", plot=True),
    Metric("client_cpu_ms", "load's CPU", "ms", more_is_better=None),
    Metric("received", "packets", plot=True),
    Metric("launcher_received", "launcher's packets"),
    Metric("client_received", "load's packets", more_is_better=None),
    Metric("failed", "failed", more_is_better=None),
)


class ReadyHosts:
    """A launcher whose hosts are all ready, and the load."""

    def __init__(self, place: Place, provider: StaticProvider) -> None:
        self.place = place
        self.load = Load(place.client, place.progress)
        self._provider = provider

    def warm_up(self, count: int) -> None:
        """Lets Java, Zuul's modules and the launcher's caches get warm; nobody's first requests are measured."""
        self.load.run(count, LABEL, self.load.use_and_return)
        self.wait_idle()

    def wait_idle(self) -> None:
        """Blocks until all nodes are free. The observer's packets are not counted."""
        wait_for("all nodes are free", lambda: all_ready(self.place, self._provider.slots), 120)


def all_ready(place: Place, count: int) -> bool:
    """Are so many nodes ready? Takes a moment, so that looking does not disturb."""
    time.sleep(LOOK_SECONDS)
    return len(place.znodes.nodes("ready")) == count


@contextmanager
def ready_hosts(
    place: Place, hosts: int, warm_up: int, extra: Mapping[str, Any] | None = None, **settings: Any
) -> Iterator[ReadyHosts]:
    """Starts a launcher with so many hosts, and warms it up with so many requests.

    :param extra: other keys of the configuration.
    :param settings: of each host, as `StaticHost`; without them host keys are not checked.
    """
    provider = StaticProvider(static_hosts(hosts, [LABEL], **settings))
    place.launch(provider, extra=extra)
    ready = ReadyHosts(place, provider)
    ready.warm_up(warm_up)
    yield ready


def latencies(runs: list[Run]) -> dict[str, float | None]:
    """p50 and p99 of all requests of some runs, in ms, and how many failed."""
    found = [latency for run in runs for latency in run.latencies()]
    return {
        "p50_ms": percentile(found, 0.5) * 1000,
        "p99_ms": percentile(found, 0.99) * 1000,
        "failed": sum(run.failed for run in runs),
    }
