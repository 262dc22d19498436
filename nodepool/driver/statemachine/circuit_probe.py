# SPDX-License-Identifier: Apache-2.0
"""`CircuitProbe`: finds out when a cloud whose circuit breaker is open answers again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.statemachine.provider_view import CloudProviderView
from nodepool.driver.statemachine.scheduler import WHEN_WOKEN_SECONDS
from nodepool.guard import Guard

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from nodepool.driver.statemachine.adapter import Log


class ProbingProvider(CloudProviderView, Protocol):
    """What a probe asks of its provider, too."""

    #: Of the circuit breaker, since it opened last.
    probe: CircuitProbe | None

    @property
    def log(self) -> Log: ...

    @property
    def idle_now(self) -> bool:
        """Is there, or will there be, a successor?"""
        ...


class CircuitProbe:
    """A task of the scheduler: asks a cloud whose circuit breaker is open whether it is back.

    :param executor: runs the calls: a cloud that is away may let them wait, and the one thread of some drivers goes on
        with deletions meanwhile.
    """

    def __init__(self, provider: ProbingProvider, executor: Executor) -> None:
        self._provider = provider
        self._executor = executor
        self._call: Future[None] | None = None
        #: The opening was logged just now.
        self._repeats = Repeats()
        self._repeats.worth_saying(provider.name)

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.scheduler.Task`."""
        if self._call is not None:
            if not self._call.done():
                return WHEN_WOKEN_SECONDS
            self._call = None
        if self._provider.probe is not self:
            # The circuit breaker closed and opened again, and has a probe of its own.
            return None
        wait = self._provider.calls.probe_due()
        if wait is None or wait > 0:
            return wait
        if self._provider.idle_now and len(self._provider.scheduler) == 1:
            # It was replaced, and nothing that it began is left: its successor asks.
            return None
        self._call = self._executor.submit(self._ask)
        self._call.add_done_callback(lambda _: self._provider.scheduler.wake(self))
        return WHEN_WOKEN_SECONDS

    def _ask(self) -> None:
        """One call; blocks."""
        name = self._provider.name
        level = logging.WARNING if self._repeats.worth_saying(name) else logging.DEBUG
        with Guard(self._provider.log, "Provider %s still fails", name, level=level, traceback=False):
            self._provider.calls.list_instances()
