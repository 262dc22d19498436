# SPDX-License-Identifier: Apache-2.0
"""How a method of a driver is called: timed and counted, with a policy for what it raises.

Which methods there are is in `nodepool.driver.gateway`.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Final, Generic, Literal, ParamSpec, Protocol, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.call_counts import CallCount, CountedCalls
from nodepool.driver.framework.policies import Otherwise, Raises
from nodepool.driver.framework.repeats import Repeats
from nodepool.driver.framework.running_calls import OF_THE_CLOUD, RunningCalls, TimeBound, about
from nodepool.exceptions import NotFound, ZKConflict
from nodepool.guard import ERRORS, as_exception
from nodepool.plan.failures import meaning

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("nodepool.driver.gateway")

#: Exceptions with which a driver answers: they are no errors of the call. NotImplementedError is how a driver of the
#: released interface says "I cannot".
ANSWERS: Final = (NotFound, NotImplementedError, ZKConflict)

Contract = Literal["driver", "provider", "handler", "adapter", "machine"]

#: All of them, in the order of the table.
HOOKS: Final[list[Hook[Any, Any]]] = []

_late = Repeats()
#: What has not returned yet.
RUNNING: Final = RunningCalls()


class Hook(Generic[P, R]):
    """One method of the contract. The subclasses say how it is called.

    :param name: of the method.
    :param policy: what follows if it raises.
    :param bound: how long it may take. Who calls waits longer all the same: `nodepool.driver.framework.running_calls`
        says why, and has what tells of the call meanwhile.
    """

    contract: Contract

    def __init__(self, name: str, policy: Raises | Otherwise[R], bound: TimeBound = OF_THE_CLOUD) -> None:
        self.name = name
        self.policy = policy
        self.bound = bound
        self._counts: dict[str, CountedCalls] = {}
        HOOKS.append(self)

    def counts(self) -> list[CallCount]:
        """What was counted so far."""
        return [
            CallCount(self.name, provider, count.calls, count.errors, count.seconds)
            for provider, count in list(self._counts.items())
        ]

    def last(self, provider: str) -> float:
        """How long the call took that ended last, in seconds; 0 = there was none."""
        count = self._counts.get(provider)
        return 0.0 if count is None else count.last

    def call(self, provider: str, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Call the method of an object.

        :param provider: name of the provider whose object it is.
        """
        begun = monotonic()
        number = RUNNING.begin(self.name, provider, begun, self.bound, owner, args)
        try:
            result: R = self._ask(owner, args, kwargs)
        except ERRORS as error:
            # It goes to the caller or into the log, by the policy.
            return self._failed(provider, monotonic() - begun, error, owner, args)
        finally:
            RUNNING.end(number)
        seconds = monotonic() - begun
        count = self._counts.get(provider) or self._counts.setdefault(provider, CountedCalls())
        with count.lock:
            count.calls += 1
            count.seconds += seconds
            count.last = seconds
        if seconds > self.bound.late_seconds:
            self._was_late(provider, seconds)
        return result

    def _ask(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(owner, self.name)(*args, **kwargs)

    def _failed(self, provider: str, seconds: float, error: BaseException, owner: Any, args: tuple[Any, ...]) -> R:
        count = self._counts.setdefault(provider, CountedCalls())
        with count.lock:
            count.calls += 1
            count.seconds += seconds
            count.last = seconds
            if not isinstance(error, ANSWERS):
                count.errors += 1
        told = as_exception(error)
        if isinstance(self.policy, Raises):
            if isinstance(told, NotImplementedError) and self.policy.without is not None:
                without: R = self.policy.without()
                return without
            raise told
        if isinstance(told, self.policy.but):
            raise told
        ids = about(owner, args)
        if isinstance(told, NotImplementedError):
            log.debug("Provider %s: the driver has no %s()", provider, self.name)
        elif meaning(told).expected:
            log.warning("Provider %s: %s(%s): %s: %s", provider, self.name, ids, type(told).__name__, told)
        else:
            log.error("Provider %s: error in %s(%s)", provider, self.name, ids, exc_info=told)
        return self.policy.make()

    def _was_late(self, provider: str, seconds: float) -> None:
        if self.bound.blocks:
            log.info("Provider %s: %s() returned after %.1f s", provider, self.name, seconds)
        elif _late.worth_saying((self.name, provider)):
            log.warning(
                "Provider %s: %s() took %.1f s and held up others; it must not block", provider, self.name, seconds
            )


class Serving(Protocol):
    """The handler of a request."""

    provider: Any


def _name(provider: Any) -> str:
    """A driver may have forgotten it: its provider is called all the same."""
    name: str = getattr(provider, "name", "") or type(provider).__name__
    return name


class ProviderHook(Hook[P, R]):
    """Called with the provider."""

    contract: Contract = "provider"

    def __call__(self, provider: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(_name(provider), provider, args, kwargs)

    def begin(self, provider: Any, *args: P.args, **kwargs: P.kwargs) -> threading.Thread | None:
        """Call it in a thread of its own, because a driver may hang there. Does not block then.

        :return: the thread; None = the system has no more threads just now, and the call was made here. A provider that
            is not stopped would work on beside the next one.
        """
        thread = threading.Thread(
            target=self.call,
            args=(_name(provider), provider, args, kwargs),
            name=f"{self.name.capitalize()}-{_name(provider)}",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("Provider %s: %s() is called in this thread: %s", _name(provider), self.name, error)
            self(provider, *args, **kwargs)
            return None
        return thread

    def within(self, seconds: float, provider: Any, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Call it, and wait for its end at most so many seconds. False = it hangs (logged)."""
        thread = self.begin(provider, *args, **kwargs)
        if thread is None:
            return True
        thread.join(seconds)
        if thread.is_alive():
            log.error(
                "Provider %s: %s() has not returned after %.0f s. Going on without it",
                *(_name(provider), self.name, seconds),
            )
        return not thread.is_alive()


class HandlerHook(Hook[P, R]):
    """Called with the handler."""

    contract: Contract = "handler"

    def __call__(self, handler: Serving, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(handler.provider.name, handler, args, kwargs)


class HandlerProperty(Hook[[], R]):
    """A property of the handler."""

    contract: Contract = "handler"

    def __call__(self, handler: Serving) -> R:
        return self.call(handler.provider.name, handler, (), {})

    def _ask(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return getattr(owner, self.name)


class NamedHook(Hook[P, R]):
    """Called with the name of the provider, for objects that do not know it, and the object."""

    contract: Contract = "adapter"

    def __init__(
        self, name: str, policy: Raises | Otherwise[R], bound: TimeBound = OF_THE_CLOUD, contract: Contract = "adapter"
    ) -> None:
        super().__init__(name, policy, bound)
        self.contract = contract

    def __call__(self, provider_name: str, owner: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.call(provider_name, owner, args, kwargs)


class ListHook(NamedHook[[], list[Any]]):
    """Its answer may be a generator, which asks the cloud while it is read."""

    def _ask(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return list(getattr(owner, self.name)(*args, **kwargs))


def slow_calls(provider: str, least_seconds: float) -> dict[str, float]:
    """Questions to the cloud of a provider -> seconds that the latest one took, or takes until now. Any thread.

    :param least_seconds: quicker ones are left out.
    """
    running = RUNNING.of_provider(provider)
    found = {}
    for hook in HOOKS:
        if hook.bound is OF_THE_CLOUD and hook.contract == "adapter":
            seconds = max(hook.last(provider), running.get(hook.name, 0.0))
            if seconds >= least_seconds:
                found[hook.name] = seconds
    return found
