# SPDX-License-Identifier: Apache-2.0
"""What takes the place of the threads of a launcher: its work is done in jobs of the world."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any

from nodepool.driver.framework.rate import Hold, working_for
from tests.model.process import Process

if TYPE_CHECKING:
    from nodepool.driver.framework.rate import HeldTime, Task
    from tests.model.launcher import Launcher
    from tests.model.process import Turn


def _owner() -> Process:
    from tests.model.world import World

    owner = World.current().owner
    assert isinstance(owner, Process)
    return owner


def launcher_that_runs() -> Launcher:
    """Whose code runs now."""
    from tests.model.launcher import Launcher

    owner = _owner()
    assert isinstance(owner, Launcher)
    return owner


class ModelThread:
    """`threading.Thread` for work that waits for nobody: it is done when it is started."""

    def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...] = (), **_: Any) -> None:
        self._target = target
        self._arguments = args

    def start(self) -> None:
        self._target(*self._arguments)

    def join(self, timeout: float | None = None) -> None:
        return

    def is_alive(self) -> bool:
        return False


class ModelScheduler:
    """`nodepool.driver.framework.rate.Scheduler`; a step of a task is a job."""

    def __init__(self, name: str, executor: Executor, on_end: Callable[[], None] = lambda: None) -> None:
        self._owner = launcher_that_runs()
        self._world = self._owner.world
        self._owner.schedulers.append(self)
        self._entries: dict[Task, _Entry] = {}
        self._order = itertools.count()
        self._on_end = on_end
        self._draining = self._ended = False

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, task: Task, *work: HeldTime) -> bool:
        if self._ended:
            return False
        self._entries[task] = _Entry(task, work, next(self._order), self._world.now)
        return True

    def wake(self, task: Task) -> None:
        entry = self._entries.get(task)
        if entry is not None:
            entry.due = self._world.now
            entry.woken = True

    def drain(self) -> None:
        self._draining = True
        self._end_if_over()

    def abandon(self) -> None:
        self._entries.clear()

    def join(self, timeout: float | None = None) -> None:
        return

    def _end_if_over(self) -> None:
        if self._draining and not self._entries and not self._ended:
            self._ended = True
            self._owner.schedulers.remove(self)
            self._on_end()

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
            with working_for(entry.work):
                wait = entry.task.step()
        except Exception:
            logging.getLogger("nodepool.driver.statemachine.Scheduler").exception("a task ended with an error")
        entry.running = False
        if wait is None:
            self._entries.pop(entry.task, None)
            self._end_if_over()
        else:
            entry.due = self._world.now + (0.0 if entry.woken else max(0.0, wait))


class _Entry:
    def __init__(self, task: Task, work: tuple[HeldTime, ...], number: int, due: float) -> None:
        self.task = task
        self.work = work
        self.number = number
        self.due = due
        self.running = False
        self.woken = False


class ModelExecutor:
    """An executor; each call is a job."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._owner = _owner()
        self._stopped = False
        self._pending: list[Future[Any]] = []

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        if self._stopped:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self._pending.append(future)
        hold = Hold()

        def work() -> None:
            hold.end()
            self._pending.remove(future)
            if not future.set_running_or_notify_cancel():
                return
            # With what follows the end of the call.
            with working_for(hold.work):
                try:
                    result = function(*arguments)
                except Exception as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)

        self._owner.world.spawn(f"{self._owner.name}.ask", self._owner, work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._stopped = True
        if cancel_futures:
            for future in self._pending:
                future.cancel()


class ModelSharedThreads:
    """`nodepool.driver.framework.rate.SharedThreads`."""

    def __init__(self, *arguments: Any) -> None:
        return

    def share(self, kind: str, limit: int, reserved: int) -> ModelExecutor:
        return ModelExecutor()

    def close(self) -> None:
        return
