# SPDX-License-Identifier: Apache-2.0
"""One launcher of the simulated world: the real `NodePool` with its workers and providers.

What runs in threads of a launcher process runs as jobs here: passes of workers, steps of launches and deletions,
questions to the cloud.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.config.objects import Config
from nodepool.driver import gateway
from nodepool.exceptions import ZKConnectionError
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.launcher.supervisor import NodePool
from nodepool.zk import paths
from nodepool.zk.transactions import ensure_path
from tests.model.process import Process, Turn

if TYPE_CHECKING:
    from nodepool.runtime.worker import Worker
    from tests.model.hosts import ModelStaticProvider
    from tests.model.layout import Layout
    from tests.model.threads import ModelScheduler
    from tests.model.world import World

MAIN_LOOP_SECONDS = 1.0


class ModelSource:
    """`nodepool.config.loader.ConfigSource`: the configuration file is the world's `Layout`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loaded: Layout | None = None

    def changed(self) -> bool:
        return self._loaded is not self._world.layout

    def load(self) -> Config:
        self._loaded = self._world.layout
        return self._loaded.config(self._world.cloud_name)


class Launcher(Process):
    """Real but for its threads and its connection."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.schedulers: list[ModelScheduler] = []
        self.racks: list[ModelStaticProvider] = []
        self.serving = False
        self.stopping = False
        self._busy: set[Worker] = set()
        self._due: dict[Worker, float] = {}
        self._main_due = 0.0
        self._main_busy = False
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
        self.serving = True

    def _clean_leaks(self) -> None:
        for provider in self.nodepool.providers.running.values():
            self.world.spawn(f"{self.name}.leaks", self, lambda p=provider: gateway.cleanup_leaked_resources(p))  # type: ignore[misc]

    @property
    def workers(self) -> list[Worker]:
        nodepool = self.nodepool
        others = (nodepool.deletion.current, nodepool.cleanup.current, nodepool.min_ready.current)
        return [*nodepool.pool_threads.all(), *others]

    def turns(self) -> Iterator[Turn]:
        """Passes of workers, and steps of tasks, that are due."""
        if not self.serving or self.frozen or self.dead:
            return
        now = self.world.now
        # A worker that finds no connection, or no complete cache, waits for it.
        if self._connected:
            for worker in self.workers:
                due = worker._event.is_set() or now >= self._due.get(worker, 0.0)
                if worker not in self._busy and due and not worker.stopping:
                    yield f"{self.name}.{type(worker).__name__}", lambda w=worker: self._begin(w)  # type: ignore[misc]
            if not self._main_busy and now >= self._main_due and not self.stopping:
                yield f"{self.name}.main", self._begin_main
        for scheduler in list(self.schedulers):
            yield from scheduler.turns()
        for provider in self.racks:
            if provider.can_begin:
                yield f"{self.name}.racks", provider.begin

    def dues(self) -> Iterator[float]:
        if not self.serving or self.frozen or self.dead:
            return
        for worker in self.workers:
            if worker not in self._busy:
                yield self._due.get(worker, 0.0)
        if not self._main_busy:
            yield self._main_due
        for scheduler in self.schedulers:
            yield from scheduler.dues()
        for provider in self.racks:
            if not provider.busy:
                yield provider.due

    def _begin(self, worker: Worker) -> None:
        self._busy.add(worker)
        self.world.spawn(f"{self.name}.{type(worker).__name__}", self, lambda: self._pass(worker))

    @property
    def _connected(self) -> bool:
        return self.client.connected and self.nodepool.cache.ready

    def _pass(self, worker: Worker) -> None:
        if not self._connected:
            self.world.baton.wait(lambda: self._connected)
        wait = worker._guarded_pass()
        if isinstance(worker, PoolWorker):
            self.world.invariants.look_at_desk(worker)
        if worker.stopping:
            with contextlib.suppress(ZKConnectionError):
                worker.on_stop()
        self._due[worker] = self.world.now + min(wait, worker._idle_seconds)
        self._busy.discard(worker)

    def stop(self) -> None:
        """SIGTERM: the pools end after the pass that they are in; tasks go on until the session is closed."""
        if self.serving and not self.dead and not self.stopping:
            self.stopping = True
            self.world.spawn(f"{self.name}.stop", self, self._stop)

    def _stop(self) -> None:
        # As the thread that does both: the end comes after the main loop.
        self.world.baton.wait(lambda: not self._main_busy)
        pools = self.nodepool.pool_threads.current()
        for pool in pools:
            pool.stop()
        self.world.baton.wait(lambda: self._busy.isdisjoint(pools))
        for pool in pools:
            with contextlib.suppress(ZKConnectionError):
                pool.on_stop()
        session = self.kazoo.session
        if session is not None:
            self.world.server.expire(session)
        self.die()

    def _begin_main(self) -> None:
        self._main_busy = True
        self.world.spawn(f"{self.name}.main", self, self._main)

    def _main(self) -> None:
        try:
            self.nodepool.run_once()
        except ZKConnectionError as error:
            self.nodepool.log.warning("Main loop interrupted: %s", error)
        self._main_due = self.world.now + MAIN_LOOP_SECONDS
        self._main_busy = False
