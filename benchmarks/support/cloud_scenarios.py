# SPDX-License-Identifier: Apache-2.0
"""What is measured with a cloud."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.suite.statistics import percentile
from benchmarks.support.backlog import Backlog
from benchmarks.support.counters import Reading, read_counters
from benchmarks.support.load import SUBMITTERS, Load
from benchmarks.support.report import Column
from benchmarks.support.simulated_cloud import LABEL
from simulators.base.client import AdminClient
from tests.support.wait import wait_for
from tests.support.workplace import Workplace
from tests.support.zuul_client import ZuulClient

#: Seconds from the first requests until it is measured how many jobs end.
RAMP_SECONDS = 20.0
#: Until all nodes are deleted.
GONE_SECONDS = 180.0
KIB_PER_MIB = 1024
COLUMNS = (
    Column("p50 ms", ("p50_ms",)),
    Column("p99 ms", ("p99_ms",)),
    Column("nodes/s", ("rate",), True),
    Column("% of possible", ("share",), True),
    Column("CPU ms", ("cpu_ms",)),
    Column("in", ("received",)),
    Column("launcher in", ("launcher_received",)),
    Column("calls", ("calls",)),
    Column("peak", ("peak_servers",), None),
    Column("double", ("double_nodes",), None),
    Column("MiB", ("memory_mib",)),
)
NOTE = """\
Per node, from its request to the end of its deletion: CPU of the launcher; "in" are packets to ZooKeeper, the load's
included; calls of the cloud's API. One node: p50 and p99 are what comes on top of the boot. At quota: possible is the
number of servers divided by the mean time of boot, job and deletion. Peak: most servers at once; double: nodes that
had two servers; MiB: resident memory at the end."""


@dataclass(frozen=True)
class CloudResult:
    """One row of the report; None = is not measured there. CPU, packets, calls: per node, from request to deletion.

    :param p50_ms: of one node: time above the boot; else submit to fulfilled.
    :param share: of the possible throughput, per cent.
    :param peak_servers: most servers at once; ``double_nodes``: nodes that had two.
    """

    candidate: str
    scenario: str
    requests: int
    failed: int
    p50_ms: float | None
    p99_ms: float | None
    rate: float | None
    share: float | None
    cpu_ms: float | None
    received: float | None
    launcher_received: float | None
    calls: float | None
    peak_servers: int
    double_nodes: int
    memory_mib: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Cost:
    """Counters at one moment, or the difference of two."""

    reading: Reading
    calls: int

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.reading - other.reading, self.calls - other.calls)


class CloudBench:
    """Runs scenarios against the launchers of a workplace.

    :param suffix: of the names of the scenarios.
    :param machines: what the cloud calls them.
    :param gone_seconds: until all of them are deleted.
    """

    def __init__(
        self,
        candidate: str,
        suffix: str,
        workplace: Workplace,
        client: ZuulClient,
        cloud: AdminClient,
        machines: str = "servers",
        gone_seconds: float = GONE_SECONDS,
    ) -> None:
        self._candidate = candidate
        self._suffix = suffix
        self._workplace = workplace
        self._client = client
        self._cloud = cloud
        self._machines = machines
        self._gone_seconds = gone_seconds

    def warm_up(self) -> None:
        """Nobody's first login, image list or import is measured."""
        load = Load(self._client)
        load.run(3, LABEL, load.use_and_return)
        self._wait_empty()

    def single(self, count: int) -> CloudResult:
        """One node at a time, at moments that no polling loop can favour; latencies are above the time of the boot."""
        load, jitter = Load(self._client), random.Random(1)
        normal = self._cloud.knobs()["boot_seconds"]
        before = self._begin()
        above: list[float] = []
        failed = 0
        for _ in range(count):
            boot = jitter.uniform(*normal)
            self._cloud.change(boot_seconds=boot)
            time.sleep(jitter.uniform(0.1, 1.1))
            run = load.run(1, LABEL, load.use_and_return)
            failed += run.failed
            above += [latency - boot for latency in run.latencies()]
        self._wait_empty()
        self._cloud.change(boot_seconds=normal)
        return self._result("one node, above its boot", count, failed, before, latencies=above)

    def burst(self, count: int) -> CloudResult:
        """``count`` nodes at once. The rate is that of fulfilment; the costs are until the last server is gone."""
        load = Load(self._client)
        fulfilled: list[Any] = []
        before = self._begin()
        run = load.run(count, LABEL, fulfilled.append)
        for request in fulfilled:
            load.use_and_return(request)
        self._wait_empty()
        rate = count / (run.last_fulfilled - run.start)
        name = f"{count} at once"
        return self._result(name, count, run.failed, before, latencies=run.latencies(), rate=rate)

    def at_quota(self, waiting: int, servers: int, hold_seconds: float, window_seconds: float) -> CloudResult:
        """``waiting`` requests wait all the time for ``servers`` servers, jobs take ``hold_seconds``.

        Possible is a server that is always in its cycle of boot, job and deletion, at the mean times of the cloud.
        """
        knobs = self._cloud.knobs()
        cycle = sum(knobs["boot_seconds"]) / 2 + hold_seconds + sum(knobs["delete_seconds"]) / 2
        backlog = Backlog(self._client, LABEL, waiting, hold_seconds)
        self._cloud.reset_counters()
        backlog.start()
        time.sleep(RAMP_SECONDS)
        before, start = self._read(), time.monotonic()
        time.sleep(window_seconds)
        cost, end = self._read() - before, time.monotonic()
        backlog.stop()
        ended = sorted(moment for moment in backlog.ended if start <= moment < end)
        rate = rate_of(ended, servers, end - start)
        share = 100 * rate / (servers / cycle)
        name = f"at quota, {waiting} waiting"
        result = self._result(name, len(ended), backlog.failed, cost=cost, rate=rate, share=share)
        self._clean_up()
        return result

    def memory(self, live: int, waiting: int) -> CloudResult:
        """``live`` nodes in use, and ``waiting`` requests that have to wait because the pool is full."""
        load = Load(self._client)
        nodesets: list[Any] = []

        def hold(request: Any) -> None:
            nodeset = self._client.accept(request)
            self._client.use(nodeset)
            nodesets.append(nodeset)

        before = self._begin()
        run = load.run(live, LABEL, hold)
        with ThreadPoolExecutor(SUBMITTERS) as submitters:
            requests = list(submitters.map(lambda _: self._client.submit([LABEL]), range(waiting)))
        time.sleep(RAMP_SECONDS)
        result = self._result(f"{live} nodes in use, {waiting} waiting", live, run.failed, before)
        for request in requests:
            self._client.cancel(request)
        for nodeset in nodesets:
            self._client.give_back(nodeset)
        self._clean_up()
        return result

    # -- counters --

    def _begin(self) -> Cost:
        self._cloud.reset_counters()
        return self._read()

    def _read(self) -> Cost:
        observer = self._workplace.znodes.kazoo.client_id[0]
        cpu = sum(launcher.cpu_seconds() for launcher in self._workplace.launchers)
        reading = read_counters(self._workplace.zookeeper, self._client.session[0], observer, cpu)
        return Cost(reading, sum(self._cloud.state()["calls"].values()))

    def _clean_up(self) -> None:
        """The released launcher may not come to an end where the cloud refuses; its figures stand all the same."""
        try:
            self._use_up_ready()
            self._wait_empty()
        except AssertionError as error:
            print(f"{self._candidate}: {error}", flush=True)

    def _use_up_ready(self) -> None:
        """Nodes whose requests were cancelled are ready for others, and would stay."""
        load = Load(self._client)
        wait_for("no launch runs", lambda: not self._workplace.znodes.nodes("building"), 180)
        load.run(len(self._workplace.znodes.nodes("ready")), LABEL, load.use_and_return)

    def _wait_empty(self) -> None:
        """Blocks until no server and no node is left. The observer's packets and calls are not counted."""
        wait_for("nothing is left", self._empty, self._gone_seconds)

    def _empty(self) -> bool:
        time.sleep(0.5)
        return self._cloud.state()["contents"][self._machines] == 0 and not self._workplace.znodes.nodes()

    def _memory_mib(self) -> float:
        """Of the launcher that has most."""
        return max(resident_kib(launcher.pid) for launcher in self._workplace.launchers) / KIB_PER_MIB

    def _result(
        self,
        scenario: str,
        count: int,
        failed: int,
        before: Cost | None = None,
        cost: Cost | None = None,
        latencies: list[float] | None = None,
        rate: float | None = None,
        share: float | None = None,
    ) -> CloudResult:
        state = self._cloud.state()
        if cost is None:
            assert before is not None
            cost = self._read() - before

        def per_node(value: float) -> float:
            return round(value / max(1, count), 2)

        def milliseconds(part: float) -> float | None:
            return None if latencies is None else round(percentile(latencies, part) * 1000, 1)

        received = cost.reading.launcher.received + cost.reading.client.received
        return CloudResult(
            candidate=self._candidate,
            scenario=f"{scenario}{self._suffix}",
            requests=count,
            failed=failed,
            p50_ms=milliseconds(0.5),
            p99_ms=milliseconds(0.99),
            rate=None if rate is None else round(rate, 2),
            share=None if share is None else round(share, 1),
            cpu_ms=per_node(cost.reading.cpu_seconds * 1000),
            received=per_node(received),
            launcher_received=per_node(cost.reading.launcher.received),
            calls=per_node(cost.calls),
            peak_servers=state[f"peak_{self._machines}"],
            double_nodes=len(state["double_nodes"]),
            memory_mib=round(self._memory_mib(), 1),
        )


def resident_kib(pid: int) -> int:
    """Memory of a process that is in use, as proc(5) tells."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])


def rate_of(ended: list[float], servers: int, seconds: float) -> float:
    """Jobs a second, from the middle of the first round of all servers to the middle of the last.

    All servers begin at once, so that many jobs end at about the same time: a window of any length would hold a
    wave too many or too few.

    :param ended: when jobs ended, in order.
    :param seconds: length of the window, for when there were no two whole rounds.
    """
    jobs = (len(ended) // servers - 1) * servers
    if jobs <= 0:
        return len(ended) / seconds
    first, last = ended[:servers], ended[jobs : jobs + servers]
    return jobs / (sum(last) / servers - sum(first) / servers)
