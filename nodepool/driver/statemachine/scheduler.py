# SPDX-License-Identifier: Apache-2.0
"""Runs many small tasks, each when it is due, in the threads of an executor.

Then the steps that launches and deletions share: drive a machine (`Driven`), delete one instance (`removal`), and look
for the instances of a node (`InstanceFinder`).
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from nodepool.clock import monotonic, next_tick
from nodepool.driver import gateway
from nodepool.driver.framework.orders import Batches
from nodepool.driver.framework.rate import HeldTime, working_for
from nodepool.driver.statemachine.instance import node_id_of
from nodepool.exceptions import NotFound
from nodepool.guard import Guard
from nodepool.plan.launch import pace
from nodepool.plan.retries import Backoff

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Adapter
    from nodepool.driver.statemachine.instance import Instance, Log, StateMachine

log = logging.getLogger("nodepool.driver.statemachine.Scheduler")

T = TypeVar("T")

#: What a task returns that waits for `Scheduler.wake`: it is looked at again after this time, to be safe.
WHEN_WOKEN_SECONDS: Final = 10.0
#: Steps for which there is so much time are taken together with others, up to `TOGETHER_SECONDS` later.
LONG_SECONDS: Final = 5.0
TOGETHER_SECONDS: Final = 1.0


class Task(Protocol):
    """Work that is done in steps."""

    def step(self) -> float | None:
        """Do what can be done now.

        :return: seconds until the next step is due; None = the task is over.
        """
        ...


class Flow:
    """A task whose steps are those of a generator, which yields the seconds until it goes on.

    :param steps: makes it; gets what makes the next step due now.
    """

    def __init__(self, scheduler: Scheduler, steps: Callable[[Callable[[], None]], Iterator[float]]) -> None:
        self._steps = steps(lambda: scheduler.wake(self))

    def step(self) -> float | None:
        return next(self._steps, None)


def ended(future: Future[T], wake: Callable[[], None]) -> Generator[float, None, T]:
    """Wait for the end of a call, in steps; its result. Raises what the call raises."""
    future.add_done_callback(lambda _: wake())
    while not future.done():
        yield WHEN_WOKEN_SECONDS
    return future.result()


@dataclass(eq=False, slots=True)
class _Entry:
    """A task and when it is due. ``turn`` tells an entry of the heap that is out of date."""

    task: Task
    work: tuple[HeldTime, ...]
    turn: int = 0
    running: bool = False
    woken: bool = False


class Scheduler:
    """One thread waits for what is due; the executor does it. A task never runs twice at once.

    The thread is started with the first task. ``_condition`` guards everything; it is not held while a task runs.

    :param name: of the thread.
    :param executor: runs the steps; it is shut down at the end.
    :param on_end: called once, in the scheduler's thread, when nothing will run any more.
    """

    def __init__(
        self,
        name: str,
        executor: Executor,
        on_end: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._name = name
        self._guard = Guard(log, "%s: a task ended with an error of its own", name)
        self._clock = clock
        self._on_end = on_end
        self._condition = threading.Condition()
        self._entries: dict[Task, _Entry] = {}
        self._heap: list[tuple[float, int, _Entry, int]] = []
        self._order = itertools.count()
        self._waiting_until = float("inf")
        self._draining = False
        self._abandoned = False
        self._ended = False
        self._thread: threading.Thread | None = None
        self._executor = executor

    def __len__(self) -> int:
        """Tasks that are not over."""
        return len(self._entries)

    def add(self, task: Task, *work: HeldTime) -> bool:
        """Take on a task, due now. Any thread; does not block. False = too late, everything has ended.

        :param work: what the task is for, if it has a time-out. A step that is due may have to wait for a thread.
        """
        with self._condition:
            if self._ended or self._abandoned:
                return False
            if self._thread is None:
                self._start()
            entry = self._entries[task] = _Entry(task, work)
            self._dispatch(entry)
            return True

    def wake(self, task: Task) -> None:
        """A task is due now. Any thread; does not block. Nothing happens to one that is over."""
        with self._condition:
            entry = self._entries.get(task)
            if entry is None:
                return
            if entry.running:
                entry.woken = True
            elif not self._abandoned:
                self._dispatch(entry)

    def drain(self) -> None:
        """End when the last task is over. Does not block."""
        with self._condition:
            self._draining = True
            self._start_ending()

    def abandon(self) -> None:
        """Run nothing more; steps that run end by themselves. Does not block."""
        with self._condition:
            self._abandoned = True
            self._start_ending()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end, after `drain` or `abandon`."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _start_ending(self) -> None:
        if self._thread is None and not self._ended:
            # Nothing ever ran; the end is still told in a thread of ours, because it may block.
            self._start()
        self._condition.notify()

    def _start(self) -> None:
        """Raises RuntimeError, and the next call tries again: the system may have no more threads just now."""
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        thread.start()
        self._thread = thread

    def _dispatch(self, entry: _Entry) -> None:
        """Let a task take its step as soon as a thread is free: no other thread need wake for that."""
        entry.turn += 1
        entry.running = True
        entry.woken = False
        try:
            with working_for(entry.work):
                self._executor.submit(self._step, entry)
        except RuntimeError:
            # No more threads can be made just now. The step is in the executor's queue all the same.
            log.exception("%s: %d tasks", self._name, len(self._entries))

    def _push(self, entry: _Entry, due: float) -> None:
        entry.turn += 1
        heapq.heappush(self._heap, (due, next(self._order), entry, entry.turn))
        if due < self._waiting_until:
            self._condition.notify()

    def _run(self) -> None:
        with self._condition:
            while True:
                self._dispatch_due()
                if self._abandoned or (self._draining and not self._entries):
                    self._ended = True
                    break
                self._waiting_until = self._heap[0][0] if self._heap else float("inf")
                wait = min(self._waiting_until - self._clock(), threading.TIMEOUT_MAX) if self._heap else None
                self._condition.wait(wait)
                self._waiting_until = float("-inf")
        self._executor.shutdown(wait=True, cancel_futures=True)
        with Guard(log, "%s: error at the end", self._name):
            self._on_end()

    def _dispatch_due(self) -> None:
        now = self._clock()
        while self._heap and not self._abandoned:
            due, _, entry, turn = self._heap[0]
            is_current = turn == entry.turn and not entry.running and entry.task in self._entries
            if is_current and due > now:
                break
            # One that is out of date goes, too: the thread need not wake for it.
            heapq.heappop(self._heap)
            if is_current:
                self._dispatch(entry)

    def _step(self, entry: _Entry) -> None:
        wait: float | None = None
        with self._guard:
            wait = entry.task.step()
        with self._condition:
            entry.running = False
            if wait is None:
                del self._entries[entry.task]
                if self._draining:
                    self._condition.notify()
            elif (entry.woken or wait <= 0) and not self._abandoned:
                self._dispatch(entry)
            else:
                due = self._clock() + wait
                self._push(entry, due if wait < LONG_SECONDS else next_tick(due, TOGETHER_SECONDS))


# Steps that launches and deletions share: drive a machine, and delete one instance.

#: Seconds after which a deletion that has no effect is sent again: the cloud may have swallowed it.
RESEND: Final = Backoff(20.0, math.inf)
#: From a deletion of an instance that failed to the next attempt.
RETRY: Final = Backoff(1.0, 60.0)


class Driven:
    """A state machine and its pace. Used by one task, one step at a time.

    :param wake: makes the task's next step due now.
    """

    def __init__(self, provider_name: str, machine: StateMachine, wake: Callable[[], None]) -> None:
        machine.wake = wake
        self._provider_name = provider_name
        self.machine = machine
        self._quiet = 0

    def advance(self) -> tuple[Any, float]:
        """Advance once; what it returned, and seconds until the next time. Raises what the machine raises."""
        before = self.machine.state
        result = gateway.advance(self._provider_name, self.machine)
        if self.machine.state != before:
            self._quiet = 0
        wait = pace(self._quiet, getattr(self.machine, "next_advance_seconds", None))
        self._quiet += 1
        return result, wait


def removal(
    provider_name: str,
    adapter: Adapter,
    external_id: Any,
    log: Log,
    wake: Callable[[], None],
    try_again: Callable[[Exception], bool] = lambda _: False,
) -> Iterator[float]:
    """Delete one instance completely. What had no effect is sent again after a while.

    Yields the seconds until the next step; it ends when the instance is gone. Raises what the driver raises.

    :param wake: makes the next step due now.
    :param try_again: is an error one that another attempt may get over?
    """
    failures = 0
    while True:
        try:
            yield from _remove(provider_name, adapter, external_id, log, wake)
            return
        except NotFound:
            return
        except Exception as error:
            # The deletion's end says so, unless it is worth another attempt.
            if not try_again(error):
                raise
            log.warning("Instance %s could not be deleted, trying again: %s", external_id, error)
            failures += 1
        yield RETRY.pause(failures)


def _remove(
    provider_name: str, adapter: Adapter, external_id: Any, log: Log, wake: Callable[[], None]
) -> Iterator[float]:
    for sent in itertools.count(1):
        machine = gateway.get_delete_state_machine(provider_name, adapter, external_id, log)
        driven = Driven(provider_name, machine, wake)
        resend_at = math.inf if machine.resends else monotonic() + RESEND.pause(sent)
        while (now := monotonic()) < resend_at:
            _, wait = driven.advance()
            if machine.complete:
                return
            yield min(wait, max(0.0, resend_at - now))


# The search after an error: is there an instance of this node? One list call answers all who ask meanwhile.

#: Pauses between the looks for an instance whose creation has no answer: it may show late.
LOOK_SECONDS: Final = (1.0, 3.0)


class InstanceFinder:
    """Looks for instances whose id is not known, because the answer to their creation was lost.

    A list that was begun before the question would not do; so those who ask while a list is under way get the next one.

    :param list_instances: asks the cloud; may block and raise.
    :param executor: where it is asked.
    :param lag_seconds: of the lists, see `InstanceCloud`.
    """

    def __init__(
        self,
        provider_name: str,
        list_instances: Callable[[], Iterable[Instance]],
        executor: Executor,
        lag_seconds: float = 0.0,
    ) -> None:
        self._provider_name = provider_name
        self._list = list_instances
        self._pauses = [*LOOK_SECONDS, *([lag_seconds] if lag_seconds else [])]
        self._looks: Batches[str] = Batches(self._look, executor, sys.maxsize)

    def search(self, node_id: str, wake: Callable[[], None], *, may_be_late: bool) -> Generator[float, None, list[Any]]:
        """Look for the instances of a node, in steps: yields the seconds until the next one.

        :param wake: makes the next step due now.
        :param may_be_late: look more than once if there seems to be none.
        :return: external ids.
        :raises Exception: the cloud could not be asked.
        """
        pauses = list(self._pauses) if may_be_late else []
        while True:
            found = yield from ended(self.find(node_id), wake)
            if found or not pauses:
                return found
            until = monotonic() + pauses.pop(0)
            # Whatever woke us meanwhile: an instance that shows late needs the whole pause.
            while (left := until - monotonic()) > 0:
                yield left

    def find(self, node_id: str) -> Future[list[Any]]:
        """Begin to look; does not block. The result is the external ids of the instances of a node."""
        return self._looks.add(node_id)

    def _look(self, take: Callable[[], list[str]]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {node_id: [] for node_id in take()}
        for instance in self._list():
            node_id = node_id_of(instance.metadata, self._provider_name)
            if node_id in found and not instance.deleted and instance.external_id is not None:
                found[node_id].append(instance.external_id)
        return found
