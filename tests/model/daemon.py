# SPDX-License-Identifier: Apache-2.0
"""A daemon of the simulated world: what runs in its threads runs as jobs here, the passes of workers among them."""

# The model runs the passes of workers itself, in place of their threads.
# ruff: noqa: SLF001
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.model.process import Process, Turn

if TYPE_CHECKING:
    from nodepool.runtime.worker import Worker
    from tests.model.world import World


class Daemon(Process):
    """Its workers make passes when they are woken or due, and its main loop makes turns."""

    #: Between two turns of the main loop.
    main_loop_seconds = 1.0

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.serving = False
        self.stopping = False
        self._busy: set[Worker] = set()
        self._due: dict[Worker, float] = {}
        self._main_due = 0.0
        self._main_busy = False

    # -- what each daemon has of its own --

    @property
    def workers(self) -> list[Worker]:
        raise NotImplementedError

    @property
    def complete(self) -> bool:
        """Does it know what is in ZooKeeper?"""
        raise NotImplementedError

    def turn(self) -> None:
        """One turn of its main loop."""
        raise NotImplementedError

    def passed(self, worker: Worker) -> None:
        """A worker has made a pass."""

    def end_worker(self, worker: Worker) -> None:
        """A worker that was stopped has made its last pass."""

    # -- whose turn it is --

    def turns(self) -> Iterator[Turn]:
        """Passes of workers that are due, and the main loop."""
        if not self.serving or self.frozen or self.dead:
            return
        now, busy, dues = self.world.now, self._busy, self._due
        due = [
            worker
            for worker in self.workers
            if (worker._event.is_set() or now >= dues.get(worker, 0.0)) and worker not in busy and not worker.stopping
        ]
        main = not self._main_busy and now >= self._main_due and not self.stopping
        # A worker that finds no connection, or no complete cache, waits for it.
        if (due or main) and self._connected:
            for worker in due:
                yield f"{self.name}.{type(worker).__name__}", lambda w=worker: self._begin(w)  # type: ignore[misc]
            if main:
                yield f"{self.name}.main", self._begin_main

    def dues(self) -> Iterator[float]:
        """When somebody has something to do by the clock."""
        if not self.serving or self.frozen or self.dead:
            return
        for worker in self.workers:
            if worker not in self._busy:
                yield self._due.get(worker, 0.0)
        if not self._main_busy:
            yield self._main_due

    @property
    def _connected(self) -> bool:
        return self.client.connected and self.complete

    def _begin(self, worker: Worker) -> None:
        self._busy.add(worker)
        self.world.spawn(f"{self.name}.{type(worker).__name__}", self, lambda: self._pass(worker))

    def _pass(self, worker: Worker) -> None:
        if not self._connected:
            self.world.baton.wait(lambda: self._connected)
        wait = worker._guarded_pass()
        self.passed(worker)
        if worker.stopping:
            self.end_worker(worker)
        self._due[worker] = self.world.now + min(wait, worker._idle_seconds)
        self._busy.discard(worker)

    # -- its end --

    def stop(self) -> None:
        """SIGTERM."""
        if self.serving and not self.dead and not self.stopping:
            self.stopping = True
            self.world.spawn(f"{self.name}.stop", self, self._stop)

    def _stop(self) -> None:
        # As the thread that does both: the end comes after the main loop.
        self.world.baton.wait(lambda: not self._main_busy)
        self.end()
        session = self.kazoo.session
        if session is not None:
            self.world.server.expire(session)
        self.die()

    def end(self) -> None:
        """In order, before the session is closed."""
        raise NotImplementedError

    # -- its main loop --

    def _begin_main(self) -> None:
        self._main_busy = True
        self.world.spawn(f"{self.name}.main", self, self._main)

    def _main(self) -> None:
        self.turn()
        self._main_due = self.world.now + self.main_loop_seconds
        self._main_busy = False
