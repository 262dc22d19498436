# SPDX-License-Identifier: Apache-2.0
"""The providers of a daemon over configuration reloads (rules G-4 to G-11).

Then one attempt to start a provider, and what ``nodepool check`` asks of providers.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Final, TypeVar

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.config import ProviderConfig
from nodepool.driver.framework.cloud_errors import CheckResult, failure
from nodepool.driver.framework.sections import UnavailableProviderConfig
from nodepool.driver.interface import Provider
from nodepool.driver.registry import Drivers, check_instance
from nodepool.exceptions import ConfigError, ZKException
from nodepool.guard import Guard, OnError, as_exception, settle
from nodepool.model.event import clipped
from nodepool.model.status import AbsentProvider
from nodepool.plan.config_diff import differences
from nodepool.plan.retries import Backoff
from nodepool.zk.zookeeper import ZooKeeper

T = TypeVar("T")

#: From a start that failed to the next attempt.
RETRY: Final = Backoff(5.0, 60.0)
#: How long the main thread waits for what a driver should do soon: all starts of one turn together, then each call.
PATIENCE_SECONDS: Final = 10.0
#: The least for one of many starts, when those before it hang.
LEAST_START_SECONDS: Final = 0.5


class Providers:
    """Started providers, by name. Changed by the main thread only; others read `running`.

    A driver that hangs in a call is not waited for: its provider is absent until the call returns, the others
    are served.
    """

    log = logging.getLogger(log_names.NODEPOOL)

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk
        self._configs: dict[str, ProviderConfig] = {}
        #: Replaced as a whole, never changed in place.
        self.running: Mapping[str, Provider] = {}
        #: Those that are configured and do not run. Replaced as a whole, too; times are in seconds since the epoch.
        self.absent: Mapping[str, AbsentProvider] = {}
        #: name -> (failed attempts, when to try again)
        self._failed: dict[str, tuple[int, float]] = {}
        #: Starts that take their time.
        self._starting: dict[str, Future[Provider]] = {}
        self._ending: list[threading.Thread] = []

    def get(self, name: str | None) -> Provider | None:
        """The provider if it runs here; None = not ours, or broken. Any thread."""
        return self.running.get(name or "")

    def apply(self, configs: Mapping[str, ProviderConfig]) -> None:
        """Make the running providers those of a configuration; one that cannot start stops nothing else."""
        changes = dict(differences(self._configs, configs, self._same))
        for name in [name for name, what in changes.items() if what == "removed"]:
            self.log.info("Removing provider %s", name)
            del self._configs[name]
            self._forget_start(name)
            self._replace(name, None)
        deadline = monotonic() + PATIENCE_SECONDS
        for name in [name for name in changes if name in configs]:
            # One by one: after an error the next call goes on here.
            self._configs[name] = configs[name]
            self._failed.pop(name, None)
            self._start(name, deadline)

    def _same(self, old: ProviderConfig, new: ProviderConfig) -> bool:
        # The class of a driver may raise here, and the other providers shall follow their sections.
        with Guard(self.log, "Provider %s: its sections cannot be compared, it is started anew", new.name):
            return bool(old == new)
        return False

    def retry_failed(self) -> None:
        """Start those that could not be started and whose time has come (G-9); take those that took their time."""
        for name in [name for name, start in self._starting.items() if start.done()]:
            self._started(name)
        now = monotonic()
        due = [name for name, (_, when) in self._failed.items() if when <= now]
        for name in [name for name in due if name not in self._starting]:
            self._start(name, now + PATIENCE_SECONDS)

    def _forget_start(self, name: str) -> None:
        """It is stopped as soon as it has started. Does not wait for that."""
        start = self._starting.pop(name, None)
        if start is not None:
            start.add_done_callback(_stop_started)

    def _start(self, name: str, deadline: float) -> None:
        """Start a provider in place of the one that runs under its name (G-5).

        :param deadline: monotonic time until which it is waited for.
        """
        config = self._configs[name]
        self._forget_start(name)
        if isinstance(config, UnavailableProviderConfig):
            # Only another configuration can change that: no retries.
            self.log.error("Provider %s is not served: %s", name, config.reason)
            self._replace(name, None)
            self._tell_absent(name, config.reason, None)
            return
        old = self.running.get(name)
        if old is not None:
            gateway.idle.within(PATIENCE_SECONDS, old)
        try:
            start = self._starting[name] = _in_thread(f"Start-{name}", lambda: start_now(config, self._zk))
        except RuntimeError as error:
            # The system has no more threads just now.
            self._not_started(name, error)
            return
        if wait([start], max(LEAST_START_SECONDS, deadline - monotonic())).done:
            self._started(name)
            return
        self.log.error("Provider %s: start() has not returned yet. Going on without it until it does", name)
        self._replace(name, None)
        self._tell_absent(name, "its start has not ended yet", None)

    def _started(self, name: str) -> None:
        """A start has ended, in one way or another."""
        start = self._starting.pop(name)
        error = start.exception()
        if error is not None:
            self._not_started(name, as_exception(error))
            return
        self._failed.pop(name, None)
        self.log.info("Started provider %s (driver %s)", name, self._configs[name].driver.name)
        self._replace(name, start.result())

    def _not_started(self, name: str, error: Exception) -> None:
        """Whatever a driver raised in start(): other providers work all the same (G-9)."""
        attempts = self._failed.get(name, (0, 0.0))[0] + 1
        delay = RETRY.pause(attempts)
        self._failed[name] = (attempts, monotonic() + delay)
        if isinstance(error, (ConfigError, ZKException)):
            # Its text says all that a user needs; a traceback would hide it.
            self.log.error("Provider %s cannot be started, trying again in %g s: %s", name, delay, error)
        else:
            self.log.error("Provider %s cannot be started, trying again in %g s", name, delay, exc_info=error)
        self._replace(name, None)
        self._tell_absent(name, str(error) or type(error).__name__, delay)

    def _tell_absent(self, name: str, text: str, delay: float | None) -> None:
        """:param delay: seconds until its start is tried again; None = it is not."""
        now = wall_time()
        before = self.absent.get(name)
        since = now if before is None else before.since
        next_try = None if delay is None else now + delay
        driver = self._configs[name].driver.name
        self.absent = {**self.absent, name: AbsentProvider(name, driver, clipped(text), since, next_try)}

    def _replace(self, name: str, new: Provider | None) -> None:
        running = dict(self.running)
        old = running.pop(name, None)
        if new is not None:
            running[name] = new
        self.running = running
        gone = name if new is not None else None
        self.absent = {key: told for key, told in self.absent.items() if key in self._configs and key != gone}
        self._failed = {failed: state for failed, state in self._failed.items() if failed in self._configs}
        if old is not None:
            gateway.idle.within(PATIENCE_SECONDS, old)
            gateway.stop_provider.within(PATIENCE_SECONDS, old)

    def stop(self, timeout: float) -> None:
        """Stop all and wait for them, together at most ``timeout`` seconds."""
        deadline = monotonic() + timeout
        for name in list(self._starting):
            self._forget_start(name)
        running, self.running = self.running, {}
        for provider in running.values():
            gateway.stop_provider.within(max(LEAST_START_SECONDS, deadline - monotonic()), provider)
        for provider in running.values():
            # join() has no timeout of its own.
            thread = gateway.join_provider.begin(provider)
            if thread is not None:
                self._ending.append(thread)
        for thread in self._ending:
            thread.join(max(0.0, deadline - monotonic()))
            if thread.is_alive():
                self.log.warning("%s: the provider has not stopped yet, not waiting for it", thread.name)


# One attempt to start a provider, in a thread of its own, because a driver may hang there.


def facade_for(config: ProviderConfig, zk: ZooKeeper) -> ZooKeeper:
    """What the driver of a provider gets of ZooKeeper: one that is not built-in may be written for 11.0.0."""
    if not Drivers.is_extra(config.driver.name):
        return zk
    from nodepool.compat.modules import facade_for_extra_driver

    return facade_for_extra_driver(zk)


def _made(config: ProviderConfig) -> Provider:
    made = gateway.get_provider(config.name, Drivers.get(config.driver.name), config)
    provider: Provider = check_instance(made, Provider, f"driver {config.driver.name!r}: getProvider()")
    return provider


def start_now(config: ProviderConfig, zk: ZooKeeper) -> Provider:
    """Make and start the provider of a section. Blocks as long as the driver does; raises what it raises."""
    provider = _made(config)
    # What it has started already must not stay after an error: there will be another attempt, and another.
    with OnError(lambda _: gateway.stop_provider(provider)):
        _complete(provider, config)
        provider.zk = facade = facade_for(config, zk)
        gateway.start_provider(provider, facade)
    return provider


def _in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """Call a function that may hang. Not in a pool of threads, which the process would wait for."""
    outcome: Future[T] = Future()
    threading.Thread(target=settle, args=([outcome], call), name=name, daemon=True).start()
    return outcome


def _stop_started(start: Future[Provider]) -> None:
    if start.exception() is None:
        # It may be called in the main thread, and a driver may hang here, too.
        gateway.stop_provider.begin(start.result())


def _complete(provider: Provider, config: ProviderConfig) -> None:
    """Set what a driver did not: one provider without a name must not end a loop over all of them."""
    if not getattr(provider, "name", ""):
        provider.name = config.name
    if getattr(provider, "provider", None) is None:
        provider.provider = config


# What ``nodepool check`` asks of the providers of a configuration. Nothing is started, and nothing is changed.

#: How long all providers together are waited for.
LIMIT_SECONDS: Final = 180.0


def check_providers(configs: Iterable[ProviderConfig], zk: ZooKeeper | None) -> dict[str, list[CheckResult]]:
    """Check providers, all at the same time; blocks. One that has not answered in time goes on in the background.

    :param zk: None: ZooKeeper cannot be reached; what needs it is left out.
    :return: name of each -> what was found; never empty.
    """
    begun = {config.name: _in_thread(f"Check-{config.name}", partial(check_provider, config, zk)) for config in configs}
    end = monotonic() + LIMIT_SECONDS
    return {name: _outcome(name, outcome, max(0.0, end - monotonic())) for name, outcome in begun.items()}


def _outcome(name: str, outcome: Future[list[CheckResult]], seconds: float) -> list[CheckResult]:
    subject = f"provider {name}"
    try:
        error = outcome.exception(seconds)
    except TimeoutError:
        return [CheckResult(subject, False, f"its check has not ended within {LIMIT_SECONDS:g} s", "see --debug")]
    return outcome.result() if error is None else [failure(subject, error)]


def check_provider(config: ProviderConfig, zk: ZooKeeper | None) -> list[CheckResult]:
    """Check one provider; returns at least one result. Blocks as long as its driver does, and raises what it raises."""
    subject = f"provider {config.name}"
    if isinstance(config, UnavailableProviderConfig):
        return [failure(subject, config.reason)]
    name, provider = config.driver.name, _made(config)
    if zk is not None:
        provider.zk = facade_for(config, zk)
    with OnError(lambda _: _end(provider)):
        found = gateway.preflight(config.name, provider)
    if not found:
        # A driver without checks may not expect to be stopped, because it was never started.
        return [CheckResult(subject, True, f"the section is in order; the driver {name} has no live checks")]
    _end(provider)
    return found


def _end(provider: Provider) -> None:
    """Stop what was never started."""
    provider.zk = None
    gateway.stop_provider(provider)
