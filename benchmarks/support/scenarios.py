# SPDX-License-Identifier: Apache-2.0
"""The three stretches of work that are measured, each against one running launcher."""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.support.counters import Reading, percentile, read_counters
from benchmarks.support.load import Load, Run
from benchmarks.support.report import Column
from tests.support.launcher import LauncherProcess
from tests.support.launcher_config import StaticProvider
from tests.support.wait import wait_for
from tests.support.workplace import Workplace
from tests.support.zuul_client import ZuulClient

LABEL = "small"
BURST_ROUNDS = 5
WARM_UP = 200
COLUMNS = (
    Column("p50 ms", ("p50_ms",)),
    Column("p99 ms", ("p99_ms",)),
    Column("req/s", ("rate",), True),
    Column("CPU ms", ("cpu_ms",)),
    Column("load CPU", ("client_cpu_ms",)),
    Column("in", ("received",)),
    Column("out", ("sent",)),
    Column("packets", ("packets",)),
    Column("launcher in/out", ("launcher_received", "launcher_sent"), None),
    Column("load in/out", ("client_received", "client_sent"), None),
)
NOTE = """\
Per request: CPU ms is the launcher's, load CPU the Zuul client's. Packets as ZooKeeper counts them, load and
launcher together: "in" are requests to the server, "out" its answers and watch events, "packets" their sum."""


@dataclass(frozen=True)
class Result:
    """One row of the report. Packets and CPU are per request."""

    candidate: str
    scenario: str
    requests: int
    failed: int
    p50_ms: float
    p99_ms: float
    rate: float
    cpu_ms: float
    client_cpu_ms: float
    launcher_received: float
    launcher_sent: float
    client_received: float
    client_sent: float
    received: float
    sent: float
    packets: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Bench:
    """Runs scenarios against one launcher that has all nodes ready."""

    def __init__(
        self,
        candidate: str,
        workplace: Workplace,
        launcher: LauncherProcess,
        provider: StaticProvider,
        client: ZuulClient,
    ) -> None:
        self._candidate = candidate
        self._workplace = workplace
        self._launcher = launcher
        self._provider = provider
        self._client = client
        self._load = Load(client)

    def single(self, count: int) -> Result:
        """One request at a time while nodes are ready, at moments that no polling loop can favour."""
        jitter = random.Random(1)
        runs = []
        before = self._read()
        for _ in range(count):
            time.sleep(jitter.uniform(0.1, 1.1))
            runs.append(self._load.run(1, LABEL, self._load.use_and_return))
        self._wait_idle()
        rate = 1 / (sum(latency for run in runs for latency in run.latencies()) / count)
        return self._result("one request, ready node", runs, self._read() - before, rate)

    def burst(self, count: int) -> Result:
        """``count`` requests at once, a ready node for each, some rounds. The rate: fulfilment, median."""
        jitter = random.Random(2)
        runs = []
        cost = Reading.zero()
        for _ in range(BURST_ROUNDS):
            time.sleep(jitter.uniform(0.1, 1.1))
            fulfilled: list[Any] = []
            before = self._read()
            runs.append(self._load.run(count, LABEL, fulfilled.append))
            cost += self._read() - before
            for request in fulfilled:
                self._load.use_and_return(request)
            self._wait_idle()
        rate = percentile([count / (run.last_fulfilled - run.start) for run in runs], 0.5)
        return self._result(f"{count} at once", runs, cost, rate)

    def steady(self, count: int) -> Result:
        """``count`` requests at once, fewer nodes, each used and returned. The rate is until the last return."""
        before = self._read()
        run = self._load.run(count, LABEL, self._load.use_and_return)
        # The last nodes come back after the last request: their packets belong to it.
        self._wait_idle()
        rate = count / (run.end - run.start)
        return self._result(f"{count} at once, used and returned", [run], self._read() - before, rate)

    def warm_up(self) -> None:
        """Lets Java, Zuul's modules and the launcher's caches get warm; nobody's first requests are measured."""
        self._load.run(WARM_UP, LABEL, self._load.use_and_return)
        self._wait_idle()

    def _read(self) -> Reading:
        observer = self._workplace.znodes.kazoo.client_id[0]
        return read_counters(self._workplace.zookeeper, self._client.session[0], observer, self._launcher.cpu_seconds())

    def _wait_idle(self) -> None:
        """Blocks until all nodes are free. The observer's packets are not counted."""
        wait_for("all nodes are free", self._all_free, 120)

    def _all_free(self) -> bool:
        time.sleep(0.5)  # a look reads every node; it should not disturb
        return len(self._workplace.znodes.nodes("ready")) == self._provider.slots

    def _result(self, scenario: str, runs: list[Run], cost: Reading, rate: float) -> Result:
        latencies = [latency for run in runs for latency in run.latencies()]
        count = len(latencies)
        launcher, client, everybody = cost.launcher, cost.client, cost.launcher + cost.client

        def per_request(value: float) -> float:
            return round(value / count, 2)

        return Result(
            candidate=self._candidate,
            scenario=scenario,
            requests=count,
            failed=sum(run.failed for run in runs),
            p50_ms=round(percentile(latencies, 0.5) * 1000, 1),
            p99_ms=round(percentile(latencies, 0.99) * 1000, 1),
            rate=round(rate, 1),
            cpu_ms=per_request(cost.cpu_seconds * 1000),
            client_cpu_ms=per_request(cost.client_cpu_seconds * 1000),
            launcher_received=per_request(launcher.received),
            launcher_sent=per_request(launcher.sent),
            client_received=per_request(client.received),
            client_sent=per_request(client.sent),
            received=per_request(everybody.received),
            sent=per_request(everybody.sent),
            packets=per_request(everybody.total),
        )
