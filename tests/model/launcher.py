# SPDX-License-Identifier: Apache-2.0
"""One launcher of the simulated world: the real `NodePool` with its workers and a state-machine provider.

What runs in threads of a launcher process runs as jobs here: passes of workers, steps of launches and deletions,
questions to the cloud.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from nodepool.config.objects import Config, Label
from nodepool.exceptions import ZKConnectionError
from nodepool.launcher.cleanup_worker import LeakSweeps
from nodepool.launcher.supervisor import NodePool
from nodepool.zk import paths, protocol
from nodepool.zk.transactions import ensure_path
from tests.model.cloud import SteppedDriver
from tests.model.connection import ModelClient
from tests.support.machine_driver import MachineProviderConfig

if TYPE_CHECKING:
    from nodepool.driver.statemachine.scheduler import Task
    from nodepool.launcher.worker import Worker
    from tests.model.world import Setup, World

MAIN_LOOP_SECONDS = 1.0

#: A lane of the world, and what happens when it is its turn.
Turn = tuple[str, Callable[[], None]]


class Process:
    """Something with a connection to ZooKeeper that can be stopped and killed."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.client = ModelClient(world, name)
        self.kazoo = self.client.model
        self.frozen = False
        self.dead = False

    def connection_turns(self) -> Iterator[Turn]:
        kazoo = self.kazoo
        session = kazoo.session
        if not kazoo.started:
            return
        if session is not None and session.alive and not kazoo.broken and kazoo.state == protocol.CONNECTED:
            if kazoo.outbox and (not self.dead or self.world.setup.sends_after_death):
                yield f"{self.name}.send", kazoo.serve
            if session.inbox and not (self.frozen or self.dead):
                yield f"{self.name}.read", kazoo.deliver
        elif not (self.frozen or self.dead):
            if kazoo.state == protocol.CONNECTED:
                yield f"{self.name}.notice", kazoo.notice
            elif not self.world.server_away:
                yield f"{self.name}.connect", kazoo.reconnect

    def turns(self) -> Iterator[Turn]:
        raise NotImplementedError

    def die(self) -> None:
        """SIGKILL."""
        self.dead = self.kazoo.dead = True
        self.kazoo.state = protocol.LOST
        self.world.kill_jobs(self)


class ModelScheduler:
    """`nodepool.driver.statemachine.scheduler.Scheduler` with the world's jobs instead of threads."""

    def __init__(self, name: str, threads: int, on_end: Callable[[], None] = lambda: None) -> None:
        from tests.model.world import World

        self._world = World.current()
        owner = self._world.starting
        assert owner is not None
        self._owner: Launcher = owner
        owner.schedulers.append(self)
        self._entries: dict[Task, _Entry] = {}
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, task: Task) -> bool:
        self._entries[task] = _Entry(task, next(self._order), self._world.now)
        return True

    def wake(self, task: Task) -> None:
        entry = self._entries.get(task)
        if entry is not None:
            entry.due = self._world.now
            entry.woken = True

    def drain(self) -> None:
        return

    def abandon(self) -> None:
        self._entries.clear()

    def join(self, timeout: float | None = None) -> None:
        return

    def turns(self) -> Iterator[Turn]:
        for entry in list(self._entries.values()):
            if not entry.running and entry.due <= self._world.now:
                yield f"{self._owner.name}.{type(entry.task).__name__}{entry.number}", lambda e=entry: self._begin(e)  # type: ignore[misc]

    def dues(self) -> Iterator[float]:
        return (entry.due for entry in self._entries.values() if not entry.running)

    def _begin(self, entry: _Entry) -> None:
        entry.running = True
        entry.woken = False
        self._world.spawn(f"{self._owner.name}.{type(entry.task).__name__}", self._owner, lambda: self._step(entry))

    def _step(self, entry: _Entry) -> None:
        wait: float | None = None
        try:
            wait = entry.task.step()
        except Exception:
            logging.getLogger("nodepool.driver.statemachine.Scheduler").exception("a task ended with an error")
        entry.running = False
        if wait is None:
            self._entries.pop(entry.task, None)
        else:
            entry.due = self._world.now + (0.0 if entry.woken else max(0.0, wait))


class _Entry:
    def __init__(self, task: Task, number: int, due: float) -> None:
        self.task = task
        self.number = number
        self.due = due
        self.running = False
        self.woken = False


class ModelExecutor:
    """`ThreadPoolExecutor` with the world's jobs instead of threads."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        from tests.model.world import World

        self._world = World.current()
        self._owner = self._world.starting

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                result = function(*arguments)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        assert self._owner is not None
        self._world.spawn(f"{self._owner.name}.ask", self._owner, work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        return


class ModelSource:
    """A configuration that does not change."""

    def changed(self) -> bool:
        return False


def make_config(setup: Setup, world: World, cloud_name: str) -> Config:
    """One provider with one pool."""
    config = Config()
    config.labels = {"small": Label("small", min_ready=setup.min_ready)}
    if setup.tenant_limit is not None:
        config.tenant_resource_limits = {"tenant": {"instances": setup.tenant_limit}}
    section = {
        "name": "one",
        "driver": "machines",
        "cloud": cloud_name,
        "pools": [{"name": "main", "max-servers": setup.max_servers, "labels": [{"name": "small"}]}],
    }
    provider = MachineProviderConfig(section)
    provider.load(config)
    config.providers = {"one": provider}
    return config


class Launcher(Process):
    """Real but for its threads and its connection."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.schedulers: list[ModelScheduler] = []
        self.serving = False
        self._busy: set[Worker] = set()
        self._due: dict[Worker, float] = {}
        self._main_due = 0.0
        self._main_busy = False
        world.starting = self
        self.nodepool = NodePool(f"/nowhere/{name}.yaml")
        self.nodepool._source = ModelSource()  # type: ignore[assignment]
        self.nodepool.config = make_config(world.setup, world, world.cloud_name)
        self.nodepool.client = self.client
        self.nodepool._build()
        self.nodepool.cleanup.clean_leaks = self._clean_leaks  # type: ignore[method-assign]
        world.starting = None
        world.spawn(f"{name}.start", self, self._start)

    def _start(self) -> None:
        """What `NodePool.run` does before its loop."""
        nodepool = self.nodepool
        self.client.connect()
        for root in (paths.NODES, paths.REQUESTS, paths.REQUEST_LOCKS):
            ensure_path(self.client, root)
        self.world.baton.wait(lambda: nodepool.cache.ready)
        self.world.starting = self
        config = nodepool.config.providers["one"]
        provider = SteppedDriver(self.world.baton).getProvider(config)
        self.world.starting = None
        provider.zk = nodepool.getZK()
        provider.start(nodepool.getZK())
        nodepool._providers._configs = {"one": config}
        nodepool._providers.running = {"one": provider}
        nodepool._update_workers()
        self.serving = True

    def _clean_leaks(self) -> None:
        for provider in self.nodepool.providers().values():
            self.world.spawn(f"{self.name}.leaks", self, lambda p=provider: LeakSweeps()._clean(p))  # type: ignore[misc]

    @property
    def workers(self) -> list[Worker]:
        nodepool = self.nodepool
        return [*nodepool.workers(), nodepool.deletion, nodepool.cleanup, nodepool._min_ready]

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
            if not self._main_busy and now >= self._main_due:
                yield f"{self.name}.main", self._begin_main
        for scheduler in self.schedulers:
            yield from scheduler.turns()

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
        self._due[worker] = self.world.now + min(wait, worker._idle_seconds)
        self._busy.discard(worker)

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
