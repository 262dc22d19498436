# SPDX-License-Identifier: Apache-2.0
"""Real launchers in the simulated world of the tests, with many providers and steady demand; what each request costs.

Time is virtual: waits for a cloud cost nothing. CPU is real: it is measured around each turn of a launcher.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from nodepool.config.objects import Config, Label
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.model import states
from nodepool.zk import paths
from tests.model.cloud import FakeModelCloud
from tests.model.server import Change, Session
from tests.model.setup import Setup
from tests.model.world import World
from tests.model.zuul import Zuul
from tests.support.machine_driver import MachineProviderConfig

#: The process clock, before the world takes the place of others.
_cpu = time.process_time
#: Between two looks of the client, in virtual seconds.
TICK_SECONDS: Final = 0.1
#: Requests may take so long in virtual time before the run is given up.
PATIENCE_SECONDS: Final = 600.0


@dataclass(frozen=True)
class Demand:
    """A site, and what is asked of it.

    :param providers: each with one pool and a label of its own.
    :param rate: requests per second, over all labels in turn.
    :param hold_seconds: how long a job has its node.
    """

    launchers: int
    providers: int
    rate: float = 10.0
    requests: int = 300
    hold_seconds: float = 5.0
    boot_seconds: float = 2.0
    max_servers: int = 100_000


@dataclass(frozen=True)
class Cost:
    """What one request cost, with the return and the deletion of its node.

    :param cpu: of all launchers together, in seconds. ``packets``: requests of all launchers to ZooKeeper.
    :param client_packets: of the client. ``writes``: of both, transactions count once.
    :param events: of watches, to all launchers together.
    :param wait: from the request until it is fulfilled, in virtual seconds; the median.
    """

    launchers: int
    providers: int
    requests: int
    cpu: float
    packets: float
    client_packets: float
    writes: float
    events: float
    wait: float


class SitePlan:
    """Takes the place of `tests.model.layout.Layout`: cloud providers with a label each."""

    hosts: tuple[()] = ()
    pools: tuple[()] = ()
    slices = 0
    limit = float("inf")

    def __init__(self, demand: Demand) -> None:
        self._demand = demand

    def config(self, cloud: FakeModelCloud) -> Config:
        config = Config()
        for number in range(self._demand.providers):
            config.labels[f"label-{number}"] = Label(f"label-{number}")
        for number in range(self._demand.providers):
            pool = {
                "name": "main",
                "max-servers": self._demand.max_servers,
                "labels": [{"name": f"label-{number}"}],
            }
            section = {"name": f"p{number}", "driver": "machines", "cloud": f"{cloud.name}-{number}", "pools": [pool]}
            provider = MachineProviderConfig(section)
            provider.load(config)
            config.providers[provider.name] = provider
        return config


class Nothing:
    """Takes the place of invariants: they cost more than what is measured."""

    def look(self) -> None: ...

    def look_at_desk(self, worker: Any) -> None: ...

    def committed(self, changes: Sequence[Change]) -> None: ...


class Client(Zuul):
    """Takes fulfilled requests and gives nodes back after a while."""

    world: Fleet

    def work(self, hold_seconds: float) -> None:
        """One look; what it does costs packets as a real client's."""
        now = self.world.now
        for request_id in list(self.waiting):
            # A real client learns it from a watch, which costs one read.
            state = self.world.state_of(paths.request(request_id))
            if state is not None and state["state"] == states.FULFILLED:
                request = self.waiting.pop(request_id)
                self.do("take", lambda r=request, i=request_id: self._accept(i, r))  # type: ignore[misc]
                self.world.waits.append(state["state_time"] - request.created_time)
        while self.world.held_until and self.world.held_until[0][0] <= now:
            _, request_id = self.world.held_until.popleft()
            self.do("return", lambda i=request_id: self._give_back(i))  # type: ignore[misc]

    def _accept(self, request_id: str, request: Any) -> None:
        current = self.zk.getNodeRequest(request_id)
        if current is None or not self._take_nodes(current):
            self.world.violation(f"request {request.id} was not taken")
            return
        self.zk.deleteNodeRequest(current)
        self.world.held_until.append((self.world.now + self.world.demand.hold_seconds, request_id))

    def _give_back(self, request_id: str) -> None:
        nodes = self.held.pop(request_id)
        for node in nodes:
            node.state = states.USED
            self.zk.storeNode(node)
        for node in nodes:
            self.zk.unlockNode(node)


class Fleet(World):
    """Use as a context manager; see `measure`."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self.packets: Counter[str] = Counter()
        self.writes = 0
        self.events: Counter[str] = Counter()
        self.waits: list[float] = []
        self.held_until: deque[tuple[float, str]] = deque()
        setup = Setup(launchers=demand.launchers, boot_seconds=demand.boot_seconds)
        super().__init__(_PlannedSetup(setup, SitePlan(demand)))  # type: ignore[arg-type]
        for number in range(demand.providers):
            FakeCloud.get(f"{self.cloud_name}-{number}").set(boot_seconds=demand.boot_seconds)
        self._count_packets()

    def make_invariants(self) -> Any:
        return Nothing()

    def __enter__(self) -> Fleet:
        super().__enter__()
        self.zuul.die()
        self.zuul = Client(self, "client")
        return self

    def __exit__(self, *reason: object) -> None:
        super().__exit__(*reason)
        for number in range(self.demand.providers):
            FakeCloud.forget(f"{self.cloud_name}-{number}")

    def step(self) -> bool:
        """As that of the world, with a stopwatch, and without its checks."""
        turns = self.turns()
        if not turns:
            return False
        for lane, act in turns[:1]:
            begin = _cpu()
            act()
            self.cpu[lane.partition(".")[0]] += _cpu() - begin
        self.steps += 1
        return True

    def state_of(self, path: str) -> dict[str, Any] | None:
        znode = self.server.znodes.get(path)
        return None if znode is None else json.loads(znode.data)

    def _count_packets(self) -> None:
        handle, publish = self.server.handle, self.server._publish

        def counted(session: Session, request: Any) -> Any:
            self.packets[session.name] += 1
            before = self.server.zxid
            try:
                return handle(session, request)
            finally:
                self.writes += self.server.zxid - before

        def published(changes: list[Change]) -> None:
            before = {session: len(session.inbox) for session in self.server.sessions}
            publish(changes)
            for session, length in before.items():
                self.events[session.name] += len(session.inbox) - length

        self.server.handle = counted  # type: ignore[method-assign]
        self.server._publish = published  # type: ignore[method-assign]

    def serve(self) -> None:
        """All requests of the demand, from the first to the deletion of the last node. Raises RuntimeError."""
        client = self.zuul
        assert isinstance(client, Client)
        asked, credit, begin = 0, 0.0, self.now
        while asked < self.demand.requests or client.waiting or self.held_until or client.held:
            credit += self.demand.rate * TICK_SECONDS
            while credit >= 1.0 and asked < self.demand.requests:
                client.submit([f"label-{asked % self.demand.providers}"])
                asked += 1
                credit -= 1.0
            client.work(self.demand.hold_seconds)
            self.run_seconds(TICK_SECONDS)
            if self.violations or self.now - begin > PATIENCE_SECONDS:
                raise RuntimeError(f"{len(client.waiting)} requests wait; {self.violations[:3]}")
        self.run_seconds(30.0)


class _PlannedSetup(SimpleNamespace):
    """A `Setup` with another layout."""

    def __init__(self, setup: Setup, plan: SitePlan) -> None:
        super().__init__(**vars(setup))
        self.layout = lambda: plan


def measure(demand: Demand) -> Cost:
    """Run it. Blocks for some ten milliseconds of CPU for each request and launcher. Raises RuntimeError."""
    with Fleet(demand) as fleet:
        fleet.run_seconds(30.0)
        fleet.cpu.clear()
        fleet.packets.clear()
        fleet.events.clear()
        fleet.writes = 0
        begin = fleet.now
        fleet.serve()
        seconds = fleet.now - begin
        names = [launcher.name for launcher in fleet.launchers]
        idle = _idle(fleet, names, seconds)
    count = demand.requests
    waits = sorted(fleet.waits)

    def each(counter: Mapping[str, float]) -> float:
        return sum(counter.get(name, 0) for name in names) / count

    return Cost(
        demand.launchers,
        demand.providers,
        count,
        each(fleet.cpu) - idle / count,
        each(fleet.packets),
        fleet.packets["client"] / count,
        fleet.writes / count,
        each(fleet.events),
        waits[len(waits) // 2],
    )


def _idle(fleet: Fleet, names: Sequence[str], seconds: float) -> float:
    """CPU that the launchers take in so long when nothing is asked of them."""
    before = sum(fleet.cpu[name] for name in names)
    sample = 30.0
    fleet.run_seconds(sample)
    return (sum(fleet.cpu[name] for name in names) - before) * seconds / sample
