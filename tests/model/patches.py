# SPDX-License-Identifier: Apache-2.0
"""What the simulated world takes the place of: clocks, random ids, names of hosts, threads, what waits for them."""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from nodepool.driver.framework.fact import Patience
from nodepool.driver.metastatic import MetastaticDriver
from nodepool.driver.statemachine import cloud as statemachine
from nodepool.driver.statemachine import instance as statemachine_instance
from nodepool.driver.statemachine.inventory import Inventory
from nodepool.driver.static import checks, provider
from nodepool.runtime import providers
from nodepool.runtime.worker import PassThread
from nodepool.zk.cache import RecordCache
from nodepool.zk.connection import Reply
from tests.model.cloud_api import ModelLister
from tests.model.hosts import ModelStaticDriver
from tests.model.process import Process
from tests.model.threads import ModelExecutor, ModelScheduler, ModelSharedThreads, ModelThread

if TYPE_CHECKING:
    from tests.model.world import World

#: Seconds of the world that a first answer of the cloud is waited for.
PATIENCE_SECONDS = 5.0

_result = Future.result
_exception = Future.exception


def take_over(world: World, patch: pytest.MonkeyPatch) -> None:
    """Until ``patch`` is undone everything in this process belongs to a world."""

    def clock() -> float:
        return world.now

    # What `nodepool.clock` reads.
    patch.setattr(time, "time", clock)
    patch.setattr(time, "monotonic", clock)
    patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=world.random.getrandbits(128), version=4))
    for name in ("getfqdn", "gethostname"):
        patch.setattr(socket, name, lambda *_: world.owner.name if isinstance(world.owner, Process) else "nobody")
    _take_over_waits(world, patch)
    patch.setattr(PassThread, "start", lambda worker: None)
    patch.setattr(PassThread, "is_alive", lambda worker: not worker.stopping)
    patch.setattr(statemachine, "Scheduler", ModelScheduler)
    for module in (statemachine, statemachine_instance):
        patch.setattr(module, "SharedThreads", ModelSharedThreads)
    patch.setattr(Inventory, "_start", lambda inventory: ModelLister(inventory))
    patch.setattr(checks, "ThreadPoolExecutor", ModelExecutor)
    patch.setattr(checks, "check_host", world.hosts.check)
    patch.setattr(provider, "is_alive", world.hosts.is_alive)
    inline = SimpleNamespace(Thread=ModelThread, Lock=threading.Lock, Event=threading.Event)
    for launcher_module in (providers, providers):
        patch.setattr(launcher_module, "threading", inline)
    cloud = world.cloud
    drivers = {cloud.driver_name: cloud.make_driver(), "static": ModelStaticDriver(), "metastatic": MetastaticDriver()}
    patch.setattr(providers, "Drivers", SimpleNamespace(get=drivers.__getitem__, is_extra=lambda name: False))


def _take_over_waits(world: World, patch: pytest.MonkeyPatch) -> None:
    def wait_for_reply(reply: Reply, timeout: float | None = None) -> bool:
        if reply.answered:
            return True
        return world.baton.wait(lambda: reply.answered, None if timeout is None else world.now + timeout)

    def wait_for_answer(patience: Patience, condition: Any, until: Callable[[], bool]) -> None:
        condition.release()
        try:
            world.baton.wait(until, world.now + PATIENCE_SECONDS)
        finally:
            condition.acquire()

    def wait_for_result(future: Future[Any], timeout: float | None = None) -> Any:
        if not future.done():
            world.baton.wait(future.done, None if timeout is None else world.now + timeout)
        return _result(future, 0)

    def wait_for_end(future: Future[Any], timeout: float | None = None) -> BaseException | None:
        if not future.done():
            world.baton.wait(future.done, None if timeout is None else world.now + timeout)
        return _exception(future, 0)

    def wait_ready(cache: RecordCache[Any], timeout: float | None = None) -> bool:
        return world.baton.wait(cache.ready.is_set, None if timeout is None else world.now + timeout)

    patch.setattr(Reply, "wait", wait_for_reply)
    patch.setattr(RecordCache, "wait_ready", wait_ready)
    patch.setattr(Patience, "wait", wait_for_answer)
    patch.setattr(Future, "result", wait_for_result)
    patch.setattr(Future, "exception", wait_for_end)


class Tracebacks(logging.Handler):
    """What would be a traceback in a launcher's log is a violation. A world with a trace shows the rest."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.DEBUG if world.trace else logging.ERROR)
        self._world = world
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        self._log = logging.getLogger("nodepool")
        self._before = (self._log.level, self._log.propagate, list(self._log.handlers))
        self._log.handlers = [self]
        self._log.propagate = False
        self._log.setLevel(self.level)

    def put_back(self) -> None:
        level, self._log.propagate, self._log.handlers = self._before
        self._log.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        job = self._world.baton.current
        if job is not None and job.killed:
            # Nobody is there any more who could log.
            return
        if record.exc_info and not isinstance(record.exc_info[1], self._world.expected_errors):
            self._world.violation("traceback: " + self.format(record))
        elif self._world.trace:
            print(f"  {self._world.now:.1f} {job}: {self.format(record)}")
