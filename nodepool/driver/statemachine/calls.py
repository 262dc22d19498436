# SPDX-License-Identifier: Apache-2.0
"""Calls that ask the cloud, with their circuit breaker, and steps that launches and deletions share.

The circuit breaker opens when calls that ask keep failing. A step drives a machine (`Driven`), or deletes one instance
(`Removal`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.exceptions import LaunchError, NotFound, RuntimeConfigurationException
from nodepool.guard import OnError
from nodepool.plan.launch import Failure, classify, pace
from nodepool.plan.retries import Backoff, CircuitBreaker

if TYPE_CHECKING:
    from nodepool.driver.config import LabelSettings
    from nodepool.driver.statemachine.adapter import Adapter, Log, StateMachine
    from nodepool.driver.statemachine.instance import Instance, Resource
    from nodepool.driver.statemachine.lost_creations import Creation
    from nodepool.model.node import QuotaInformation

T = TypeVar("T")


def said_by(provider: str, error: BaseException) -> str:
    """What an error says, in one line, for a sentence that names the provider already.

    Errors of drivers name the provider, and say by themselves what is wrong; others are known by their type.
    """
    text = str(error)
    said = text.removeprefix(f"Provider {provider}: ")
    return (said if said and said != text else f"{type(error).__name__}: {text}").splitlines()[0]


class CloudCalls:
    """The adapter's calls that are not part of a machine; all of them may block, and raise what the adapter raises.

    ``_lock`` guards ``_breaker``; it is not held while the cloud is asked.

    :param name: of the provider.
    :param on_change: called when the circuit breaker opens or closes, in the thread of the call that showed it. Must
        not block.
    """

    def __init__(
        self,
        name: str,
        adapter: Adapter,
        log: Log,
        on_change: Callable[[bool], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._name = name
        self._adapter = adapter
        self._log = log
        self._on_change = on_change
        self._clock = clock
        self._lock = threading.Lock()
        self._breaker = CircuitBreaker()
        #: When it opened, and when the cloud is asked again, in seconds since the epoch; None = it is closed.
        self._opened_at: float | None = None
        self._probe_at: float | None = None

    # -- the state of the cloud --

    @property
    def circuit_open(self) -> bool:
        """Is the circuit breaker open?"""
        return self._breaker.is_open

    @property
    def circuit_reason(self) -> str:
        """What the cloud did last; empty while the circuit breaker is closed."""
        return self._breaker.reason

    @property
    def circuit_times(self) -> tuple[float | None, float | None]:
        """When the circuit breaker opened, and when the cloud is asked again, in seconds since the epoch."""
        with self._lock:
            return self._opened_at, self._probe_at

    def probe_due(self) -> float | None:
        """Seconds until the cloud is to be asked whether it is back; None = it answers."""
        with self._lock:
            return self._breaker.probe_due(self._clock())

    def failed(self, error: BaseException) -> None:
        """The cloud did not do what it was asked, for a reason of its own."""
        reason = said_by(self._name, error)[:300]
        with self._lock:
            now = self._clock()
            before = self._breaker.probe_due(now)
            begins = self._breaker.failed(now, reason)
            due = self._breaker.probe_due(now)
            if begins:
                self._opened_at = wall_time()
            if due is not None and due != before:
                self._probe_at = wall_time() + due
        if begins:
            self._log.error(
                "Provider %s keeps failing (%s). Its circuit breaker opens: no new launches until it answers again",
                self._name,
                reason,
            )
            self._on_change(True)

    def worked(self) -> None:
        """The cloud did what it was asked."""
        with self._lock:
            ends = self._breaker.worked()
            if ends:
                self._opened_at = self._probe_at = None
        if ends:
            self._log.info("Provider %s answers again, launches go on", self._name)
            self._on_change(False)

    def judge(self, error: BaseException) -> None:
        """Note an error of a machine: only some of them say something about the cloud."""
        if classify(error) is Failure.CLOUD:
            self.failed(error)

    def _ask(self, call: Callable[[], T]) -> T:
        with OnError(self._not_answered):
            result = call()
        self.worked()
        return result

    def _not_answered(self, error: BaseException) -> None:
        if not isinstance(error, Exception) or isinstance(error, (NotImplementedError, RuntimeConfigurationException)):
            return
        if not isinstance(error, LaunchError) or classify(error) is Failure.CLOUD:
            self.failed(error)

    def _look_up(self, call: Callable[[], T]) -> T:
        """Ask what may be known without the cloud: only that it does not answer says something about it."""
        with OnError(self.judge):
            return call()

    # -- questions --

    def list_instances(self) -> list[Instance]:
        """All instances; none if the driver cannot list them."""
        try:
            return self._ask(lambda: gateway.list_instances(self._name, self._adapter))
        except NotImplementedError:
            # How a driver of the released interface says that it cannot.
            return []

    def list_resources(self) -> list[Resource]:
        """All that could be left over; nothing if the driver cannot list it."""
        try:
            return self._ask(lambda: gateway.list_resources(self._name, self._adapter))
        except NotImplementedError:
            # How a driver of the released interface says that it cannot.
            return []

    def unanswered_creations(self) -> Sequence[Creation]:
        """Creations without an answer, as far as the driver knows. Does not block."""
        return gateway.unanswered_creations(self._name, self._adapter)

    def get_quota_limits(self) -> QuotaInformation:
        return self._look_up(lambda: gateway.get_quota_limits(self._name, self._adapter))

    def get_quota_for_label(self, label: LabelSettings) -> QuotaInformation:
        return self._look_up(lambda: gateway.get_quota_for_label(self._name, self._adapter, label))

    def get_azs(self) -> Sequence[str | None]:
        return self._look_up(lambda: gateway.get_azs(self._name, self._adapter)) or [None]

    def label_ready(self, label: LabelSettings) -> bool:
        return self._look_up(lambda: gateway.label_ready_in_cloud(self._name, self._adapter, label))


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


class Removal:
    """Deletes one instance completely. What had no effect is sent again after a while.

    :param provider: its name and its adapter.
    :param wake: makes the next step due now.
    :param try_again: is an error one that another attempt may get over? Else `step` raises it.
    """

    def __init__(
        self,
        provider: tuple[str, Adapter],
        external_id: Any,
        log: Log,
        wake: Callable[[], None],
        try_again: Callable[[Exception], bool] = lambda _: False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._name, self._adapter = provider
        self._external_id = external_id
        self._log = log
        self._wake = wake
        self._try_again = try_again
        self._clock = clock
        self._driven: Driven | None = None
        self._sent = 0
        self._resend_at = 0.0
        self._failures = 0

    def step(self) -> float | None:
        """Go on; None = the instance is gone, else seconds until the next step. Raises what the driver raises."""
        try:
            return self._step()
        except NotFound:
            return None
        except Exception as error:
            # The deletion's end says so, unless it is worth another attempt.
            if not self._try_again(error):
                raise
            self._log.warning("Instance %s could not be deleted, trying again: %s", self._external_id, error)
            # It begins anew: what is sent next is the first of its kind.
            self._driven, self._sent = None, 0
            self._failures += 1
            return RETRY.pause(self._failures)

    def _step(self) -> float | None:
        now, name = self._clock(), self._name
        if self._driven is None or (now >= self._resend_at and not self._driven.machine.resends):
            machine = gateway.get_delete_state_machine(name, self._adapter, self._external_id, self._log)
            self._driven = Driven(name, machine, self._wake)
            self._sent += 1
            self._resend_at = now + RESEND.pause(self._sent)
        _, wait = self._driven.advance()
        if self._driven.machine.complete:
            return None
        return wait if self._driven.machine.resends else min(wait, max(0.0, self._resend_at - now))
