# SPDX-License-Identifier: Apache-2.0
"""One launcher of the simulated world: the real `NodePool` with its workers and providers.

What runs in threads of a launcher process runs as jobs here: passes of workers, steps of launches and deletions,
questions to the cloud.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.config.loader import ConfigSource
from nodepool.config.objects import Config
from nodepool.driver import gateway
from nodepool.exceptions import ZKConnectionError
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.launcher.supervisor import NodePool
from nodepool.zk import paths
from nodepool.zk.transactions import ensure_path
from tests.model.daemon import Daemon
from tests.model.process import Turn

if TYPE_CHECKING:
    from nodepool.runtime.worker import Worker
    from tests.model.cloud_api import ModelLister
    from tests.model.hosts import ModelStaticProvider
    from tests.model.layout import Layout
    from tests.model.threads import ModelScheduler
    from tests.model.world import World


class ModelSource(ConfigSource):
    """The configuration file is the world's `Layout`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._given: Layout | None = None

    def files(self) -> list[str]:
        return []

    def changed(self) -> bool:
        return self._given is not self._world.layout

    def load(self) -> Config:
        self._given = self._world.layout
        return self._given.config(self._world.cloud)


class Launcher(Daemon):
    """Real but for its threads and its connection."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.schedulers: list[ModelScheduler] = []
        self.racks: list[ModelStaticProvider] = []
        self.listers: list[ModelLister] = []
        world.starting = self
        self.nodepool = NodePool(f"/nowhere/{name}.yaml")
        self.nodepool.configuration.source = ModelSource(world)
        self.nodepool.configuration.load()
        self.nodepool.build(self.client)
        self.nodepool.cleanup.current.clean_leaks = self._clean_leaks  # type: ignore[method-assign]
        world.starting = None
        world.spawn(f"{name}.start", self, self._start)

    def _start(self) -> None:
        """What `NodePool.run` does before its loop."""
        nodepool = self.nodepool
        self.client.connect()
        for root in (paths.NODES, paths.REQUESTS, paths.REQUEST_LOCKS):
            ensure_path(self.client, root)
        self.world.baton.wait(lambda: nodepool.cache.ready)
        nodepool.apply(nodepool.configuration.current)
        nodepool.look_again()
        self.serving = True

    def _clean_leaks(self) -> None:
        for provider in self.nodepool.providers.running.values():
            self.world.spawn(f"{self.name}.leaks", self, lambda p=provider: gateway.cleanup_leaked_resources(p))  # type: ignore[misc]

    @property
    def workers(self) -> list[Worker]:
        nodepool = self.nodepool
        others = (
            nodepool.deletion.current,
            nodepool.cleanup.current,
            nodepool.min_ready.current,
            nodepool.mixed.current,
        )
        return [*nodepool.pool_threads.all(), *others]

    @property
    def complete(self) -> bool:
        return self.nodepool.cache.ready

    def turns(self) -> Iterator[Turn]:
        """Passes of workers, and steps of tasks, that are due."""
        if not self.serving or self.frozen or self.dead:
            return
        yield from super().turns()
        for scheduler in list(self.schedulers):
            yield from scheduler.turns()
        for provider in self.racks:
            if provider.can_begin:
                yield f"{self.name}.racks", provider.begin
        for lister in self.listers:
            yield from lister.turns()

    def dues(self) -> Iterator[float]:
        if not self.serving or self.frozen or self.dead:
            return
        yield from super().dues()
        for scheduler in self.schedulers:
            yield from scheduler.dues()
        for provider in self.racks:
            if not provider.busy:
                yield provider.due
        for lister in self.listers:
            yield from lister.dues()

    def passed(self, worker: Worker) -> None:
        if isinstance(worker, PoolWorker):
            self.world.invariants.look_at_desk(worker)

    def end_worker(self, worker: Worker) -> None:
        with contextlib.suppress(ZKConnectionError):
            worker.on_stop()

    def end(self) -> None:
        """The pools end after the pass that they are in; tasks go on until the session is closed."""
        workers = [self.nodepool.mixed.current, *self.nodepool.pool_threads.current()]
        for worker in workers:
            worker.stop()
        self.world.baton.wait(lambda: self._busy.isdisjoint(workers))
        for worker in workers:
            with contextlib.suppress(ZKConnectionError):
                worker.on_stop()

    def turn(self) -> None:
        try:
            self.nodepool.run_once()
        except ZKConnectionError as error:
            self.nodepool.log.warning("Main loop interrupted: %s", error)
