# SPDX-License-Identifier: Apache-2.0
"""Several launchers on one ZooKeeper share static hosts; launchers die and nothing is lost."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.launcher_config import FakeProvider, StaticHost, StaticProvider
from tests.support.pool_znodes import REQUEST_LOCKS, PoolZnodes
from tests.support.wait import wait_for, watching
from tests.support.workplace import Workplace

if TYPE_CHECKING:
    from tests.support.zuul_client import ZuulClient

HOSTS = [StaticHost(f"127.1.1.{number}", ["small"], slots=2) for number in range(1, 5)]
#: So that a killed launcher's locks are gone soon.
SESSION_SECONDS = 2.0


class ZuulJobs:
    """A context manager: jobs run in threads of it; leaving it waits for all and raises the first error."""

    def __init__(self, client: ZuulClient, threads: int = 8) -> None:
        self._client = client
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="zuul-job")
        self._jobs: list[Future[None]] = []
        self._lock = threading.Lock()
        self._in_use: dict[tuple[str, int], str] = {}

    def __enter__(self) -> ZuulJobs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)
        if kind is None:
            for job in self._jobs:
                job.result()

    def submit(self, count: int, labels: Sequence[str] = ("small",)) -> None:
        """Queues ``count`` jobs, each with one node per label."""
        self._jobs += [self._pool.submit(self._job, labels) for _ in range(count)]

    @property
    def done(self) -> int:
        """How many jobs have ended."""
        return sum(job.done() for job in self._jobs)

    def wait_done(self, count: int) -> None:
        """Blocks until ``count`` jobs have ended, and raises the error of those that failed."""
        wait_for(f"{count} jobs done", lambda: self.done >= count, 90)
        for job in [job for job in self._jobs if job.done()]:
            job.result()

    def _job(self, labels: Sequence[str]) -> None:
        request = self._client.submit_and_wait(labels)
        assert request.state == "fulfilled", f"request {request.id} is {request.state}"
        nodeset = self._client.accept(request)
        places = [(node.interface_ip, node.slot) for node in nodeset.getNodes()]
        with self._lock:
            for place in places:
                assert place not in self._in_use, f"{place} was given to {self._in_use[place]} and to {request.id}"
                self._in_use[place] = request.id
        self._client.use(nodeset)
        with self._lock:
            for place in places:
                del self._in_use[place]
        self._client.give_back(nodeset)


@pytest.fixture
def one_node_per_slot(znodes: PoolZnodes) -> Iterator[None]:
    """Looks all the time that no slot of a host has two nodes."""
    doubles = Counter[tuple[str, int]]()

    def look() -> None:
        slots = Counter((node["hostname"], node["slot"]) for node in znodes.nodes().values())
        doubles.update({slot: count for slot, count in slots.items() if count > 1})

    with watching(look):
        yield
    assert not doubles, f"registered twice: {doubles}"


@pytest.mark.usefixtures("one_node_per_slot")
def test_no_double_registration_and_no_double_allocation(workplace: Workplace, zuul: ZuulClient) -> None:
    """S-10, X-8: started together with the same hosts, under load: each slot has one node, each node one request."""
    provider = StaticProvider(HOSTS)
    launchers = [workplace.launch(provider, wait=False) for _ in range(2)]
    workplace.wait_registered(launchers[1], 2)
    workplace.wait_nodes(provider)
    with ZuulJobs(zuul) as jobs:
        jobs.submit(40)
        jobs.submit(20, ["small", "small"])
        jobs.submit(10, ["small", "small", "small"])
    workplace.wait_nodes(provider)
    assert all(launcher.running for launcher in launchers)


@pytest.mark.usefixtures("one_node_per_slot")
def test_killed_under_load(workplace: Workplace, zuul: ZuulClient) -> None:
    """F-1, G-14, C-4: kill -9 of launchers in the middle of many requests: every job gets its nodes."""
    provider = StaticProvider(HOSTS)
    first = workplace.launch(provider, session_seconds=SESSION_SECONDS)
    second = workplace.launch(provider, session_seconds=SESSION_SECONDS)
    with ZuulJobs(zuul, threads=16) as jobs:
        jobs.submit(150, ["small", "small"])
        jobs.wait_done(20)
        first.kill()
        jobs.wait_done(50)
        third = workplace.launch(provider, wait=False, session_seconds=SESSION_SECONDS)
        workplace.wait_registered(third, 2)
        second.kill()
    workplace.wait_nodes(provider)
    _no_locks_left(workplace.znodes)


@pytest.mark.usefixtures("one_node_per_slot")
def test_stopped_past_its_session(workplace: Workplace, zuul: ZuulClient) -> None:
    """A launcher that wakes up after its session is gone overwrites nothing and serves again."""
    provider = StaticProvider(HOSTS)
    sleeper = workplace.launch(provider, session_seconds=SESSION_SECONDS)
    other = workplace.launch(provider, session_seconds=SESSION_SECONDS)
    pools = {pool["id"] for pool in workplace.znodes.pools()}
    with ZuulJobs(zuul) as jobs:
        jobs.submit(60, ["small", "small"])
        jobs.wait_done(10)
        sleeper.send_signal(signal.SIGSTOP)
        wait_for("the session of the stopped launcher is gone", lambda: len(workplace.znodes.pools()) == 1)
        jobs.wait_done(40)
        sleeper.send_signal(signal.SIGCONT)
        wait_for("it is registered again", lambda: {pool["id"] for pool in workplace.znodes.pools()} == pools)
        jobs.submit(30, ["small"])
    assert other.running
    other.stop()
    assert sleeper.running
    with ZuulJobs(zuul) as jobs:
        jobs.submit(5)
    workplace.wait_nodes(provider)


@pytest.mark.parametrize("successor_runs", [True, False], ids=["other-launcher", "restart"])
def test_killed_while_launching(workplace: Workplace, zuul: ZuulClient, successor_runs: bool) -> None:
    """F-1, G-14, C-4: killed with a request pending and a node building: another one deletes it and serves."""
    stuck = workplace.launch(FakeProvider(["vm"], settings={"hang": True}), session_seconds=SESSION_SECONDS)
    znodes = workplace.znodes
    submitted = zuul.submit(["vm"])
    building = wait_for("a node is being built", lambda: list(znodes.nodes("building")))
    assert znodes.request_state(submitted.id) == "pending"

    healthy = FakeProvider(["vm"])
    if successor_runs:
        other = workplace.launch(healthy, wait=False, session_seconds=SESSION_SECONDS)
        workplace.wait_registered(other, 2)
    stuck.kill()
    if not successor_runs:
        workplace.launch(healthy, wait=False, session_seconds=SESSION_SECONDS)

    request = zuul.wait(submitted, 90)
    assert request.state == "fulfilled"
    assert request.nodes != building
    nodeset = zuul.accept(request)
    zuul.use(nodeset)
    zuul.give_back(nodeset)
    wait_for("no node is left", lambda: not znodes.children("/nodepool/nodes"))
    _no_locks_left(znodes)


def _no_locks_left(znodes: PoolZnodes) -> None:
    """Lock directories do not outlive their request."""
    wait_for("no lock directory is left", lambda: not znodes.children(REQUEST_LOCKS))
