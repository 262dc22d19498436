# SPDX-License-Identifier: Apache-2.0
"""Shares of tenants over time: three real launchers in virtual time, and five tenants that want more than there is."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.simulate.fleet import Client, Nothing, _PlannedSetup
from nodepool.config.objects import Config, Label
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.model import states
from nodepool.model.request import NodeRequest
from nodepool.model.status import TenantShare
from nodepool.zk import paths
from tests.model.cloud import FakeModelCloud
from tests.model.setup import Setup
from tests.model.world import World
from tests.support.machine_driver import MachineProviderConfig

LAUNCHERS: Final = 3
#: Servers of each pool. Each launcher serves both.
ROOMS: Final = {"small": 40, "gpu": 8}
#: A job takes as long as this, more or less by a half.
JOB_SECONDS: Final = 120.0
BOOT_SECONDS: Final = 2.0
TICK_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Tenant:
    """How a tenant behaves.

    :param nodesets: what it asks for.
    :param waiting: it always has so many requests waiting for each of them.
    :param every: it comes once in so many seconds, with ``waiting`` requests; 0 = it is always there.
    """

    nodesets: Sequence[Sequence[str]]
    waiting: int
    share: TenantShare = field(default_factory=TenantShare)
    every: float = 0.0


TENANTS: Final[Mapping[str, Tenant]] = {
    "flood": Tenant([["small"], ["gpu"]], 30),
    "sets": Tenant([["small"] * 5], 3),
    "gpu": Tenant([["gpu"]], 5),
    "rare": Tenant([["small"]], 4, TenantShare(1.0, {"instances": 4}), every=400.0),
    "usual": Tenant([["small"]], 10, TenantShare(2.0)),
}


class SharedSite:
    """Takes the place of `tests.model.layout.Layout`. :param shares: are there shares?"""

    hosts: tuple[()] = ()
    pools: tuple[()] = ()
    slices = 0
    limit = float("inf")

    def __init__(self, *, shares: bool) -> None:
        self._shares = shares

    def config(self, cloud: FakeModelCloud) -> Config:
        config = Config()
        config.labels = {name: Label(name) for name in ROOMS}
        if self._shares:
            config.tenant_shares = {name: tenant.share for name, tenant in TENANTS.items()}
        for name, servers in ROOMS.items():
            pool = {"name": "main", "max-servers": servers, "labels": [{"name": name}]}
            section = {"name": f"p-{name}", "driver": "machines", "cloud": f"{cloud.name}-{name}", "pools": [pool]}
            provider = MachineProviderConfig(section)
            provider.load(config)
            config.providers[provider.name] = provider
        return config


class SharesClient(Client):
    """Submits for tenants, and gives nodes back after a while."""

    world: SharesWorld  # type: ignore[assignment]

    def submit_for(self, tenant: str, labels: Sequence[str]) -> None:
        self.do("submit", lambda: self._submit(list(labels), tenant))

    def work(self, hold_seconds: float) -> None:
        now = self.world.now
        for request_id in list(self.waiting):
            znode = self.world.server.znodes.get(paths.request(request_id))
            state = None if znode is None else json.loads(znode.data)
            if state is not None and state["state"] == states.FULFILLED:
                request = self.waiting.pop(request_id)
                self.world.served[str(request.tenant_name)].append((now, now - (request.created_time or now)))
                seconds = self.world.chance.uniform(0.5, 1.5) * hold_seconds
                self.do("take", lambda r=request, i=request_id, s=seconds: self._begin_job(i, r, s))  # type: ignore[misc]
        held = self.world.ends
        for request_id in [request_id for request_id, end in held.items() if end <= now]:
            del held[request_id]
            self.do("return", lambda i=request_id: self._give_back(i))  # type: ignore[misc]

    def _begin_job(self, request_id: str, request: NodeRequest, seconds: float) -> None:
        current = self.zk.getNodeRequest(request_id)
        if current is None or not self._take_nodes(current):
            self.world.violation(f"request {request.id} was not taken")
            return
        self.zk.deleteNodeRequest(current)
        self.world.ends[request_id] = self.world.now + seconds


class SharesWorld(World):
    """Use as a context manager; see `simulate`."""

    def __init__(self, seed: int, *, shares: bool) -> None:
        self.chance = random.Random(seed)
        self.served: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self.ends: dict[str, float] = {}
        #: Time -> tenant -> servers, in all pools.
        self.samples: list[tuple[float, dict[str, int]]] = []
        self._next: dict[str, float] = {}
        setup = Setup(launchers=LAUNCHERS, boot_seconds=BOOT_SECONDS)
        super().__init__(_PlannedSetup(setup, SharedSite(shares=shares)))  # type: ignore[arg-type]
        for name in ROOMS:
            FakeCloud.get(f"{self.cloud_name}-{name}").set(boot_seconds=BOOT_SECONDS)

    def make_invariants(self) -> Any:
        return Nothing()

    def __enter__(self) -> SharesWorld:
        super().__enter__()
        self.invariants = Nothing()  # type: ignore[assignment]
        self.server.on_commit = lambda changes: None
        self.zuul.die()
        self.zuul = SharesClient(self, "client")
        return self

    def __exit__(self, *reason: object) -> None:
        super().__exit__(*reason)
        for name in ROOMS:
            FakeCloud.forget(f"{self.cloud_name}-{name}")

    def step(self) -> bool:
        turns = self.turns()
        for _, act in turns[:1]:
            act()
        return bool(turns)

    def run_site(self, seconds: float) -> None:
        """Tenants ask and work for so long."""
        client = self.zuul
        assert isinstance(client, SharesClient)
        until = self.now + seconds
        while self.now < until:
            self._ask(client)
            client.work(JOB_SECONDS)
            self.run_seconds(TICK_SECONDS)
            self._sample()

    def _ask(self, client: SharesClient) -> None:
        waiting = Counter((request.tenant_name, tuple(request.node_types)) for request in client.waiting.values())
        for name, tenant in TENANTS.items():
            if tenant.every:
                due = self._next.setdefault(name, self.now + self.chance.uniform(0.5, 1.0) * tenant.every)
                if self.now < due:
                    continue
                self._next[name] = due + tenant.every * self.chance.uniform(0.8, 1.2)
            for labels in tenant.nodesets:
                for _ in range(tenant.waiting - (0 if tenant.every else waiting[name, tuple(labels)])):
                    client.submit_for(name, labels)

    def _sample(self) -> None:
        now: dict[str, int] = dict.fromkeys(TENANTS, 0)
        for path, znode in self.server.znodes.items():
            if path.startswith(f"{paths.NODES}/") and path.count("/") == 3 and znode.data:
                tenant = json.loads(znode.data).get("tenant_name")
                if tenant in now:
                    now[tenant] += 1
        self.samples.append((self.now, now))


def simulate(seed: int, seconds: float, *, shares: bool = True) -> SharesWorld:
    """Run the site. Blocks for some seconds of CPU for each minute of virtual time. Raises AssertionError."""
    with SharesWorld(seed, shares=shares) as world:
        world.run_seconds(30.0)
        world.run_site(seconds)
        assert not world.violations, world.violations
        return world


def room_of(tenant: str) -> int:
    """Servers that its requests could use."""
    return sum(ROOMS[label] for label in {label for labels in TENANTS[tenant].nodesets for label in labels})


def parts(samples: Sequence[tuple[float, Mapping[str, int]]]) -> dict[str, float]:
    """Tenant -> the part of its room that it has used, 0 to 1."""
    return {name: sum(used[name] for _, used in samples) / len(samples) / room_of(name) for name in TENANTS}


def fair(found: Mapping[str, float]) -> dict[str, float]:
    """Tenant -> the part that is fair for those that always want more: what all use is divided by the weights."""
    always = [name for name, tenant in TENANTS.items() if not tenant.every]
    used = sum(found[name] * room_of(name) for name in always)
    each = used / sum(room_of(name) * TENANTS[name].share.weight for name in always)
    return {name: each * TENANTS[name].share.weight for name in always}
