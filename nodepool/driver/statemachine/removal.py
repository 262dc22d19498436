# SPDX-License-Identifier: Apache-2.0
"""Steps that launches and deletions share: drive a machine, and delete one instance."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.exceptions import NotFound
from nodepool.plan import launch_attempt as plan
from nodepool.plan.backoff import Backoff

if TYPE_CHECKING:
    from nodepool.driver.statemachine.machine import StateMachine

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
        wait = plan.pace(self._quiet, getattr(self.machine, "next_advance_seconds", None))
        self._quiet += 1
        return result, wait


class Removal:
    """Deletes one instance completely.

    :param make: makes a delete machine of it.
    """

    def __init__(
        self,
        provider_name: str,
        make: Callable[[], StateMachine],
        wake: Callable[[], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._provider_name = provider_name
        self._make = make
        self._wake = wake
        self._clock = clock
        self._driven: Driven | None = None
        self._sent = 0
        self._resend_at = 0.0

    def step(self) -> float | None:
        """Go on; None = the instance is gone, else seconds until the next step. Raises what the driver raises."""
        now = self._clock()
        try:
            if self._driven is None or (now >= self._resend_at and not self._driven.machine.resends):
                self._driven = Driven(self._provider_name, self._make(), self._wake)
                self._sent += 1
                self._resend_at = now + RESEND.pause(self._sent)
            _, wait = self._driven.advance()
        except NotFound:
            return None
        if self._driven.machine.complete:
            return None
        return wait if self._driven.machine.resends else min(wait, max(0.0, self._resend_at - now))


class Done:
    """The end of a task, for those who wait for it (`nodepool.driver.interface.CleanupTask`)."""

    def __init__(self) -> None:
        self._event = threading.Event()
        #: Why it failed, after the end; None = it did not.
        self.error: Exception | None = None

    def is_alive(self) -> bool:
        """Is it still running? Does not block."""
        return not self._event.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most ``timeout`` seconds."""
        self._event.wait(timeout)

    def set(self) -> None:
        self._event.set()
