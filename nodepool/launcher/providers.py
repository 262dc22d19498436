# SPDX-License-Identifier: Apache-2.0
"""The providers of a launcher over configuration reloads (behaviour.md G-4 to G-11)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from nodepool.driver.contract import check_instance
from nodepool.driver.interface import Provider
from nodepool.driver.registry import Drivers
from nodepool.driver.unavailable import UnavailableProviderConfig
from nodepool.exceptions import ConfigError
from nodepool.plan.reconfigure import compare

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.zk.zookeeper import ZooKeeper

FIRST_RETRY_SECONDS: Final = 5.0
LAST_RETRY_SECONDS: Final = 60.0


class Providers:
    """Started providers, by name. Changed by the main thread only; others read `running`."""

    log = logging.getLogger("nodepool.NodePool")

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk
        self._configs: dict[str, ProviderConfig] = {}
        #: Replaced as a whole, never changed in place.
        self.running: Mapping[str, Provider] = {}
        #: name -> (failed attempts, when to try again)
        self._failed: dict[str, tuple[int, float]] = {}
        self._ending: list[threading.Thread] = []

    def apply(self, configs: Mapping[str, ProviderConfig]) -> None:
        """Make the running providers those of a configuration; one that cannot start stops nothing else."""
        change = compare(self._configs, configs)
        self._configs = {name: self._configs[name] if name in change.kept else configs[name] for name in configs}
        for name in change.removed:
            self.log.info("Removing provider %s", name)
            self._replace(name, None)
        for name in (*change.added, *change.changed):
            self._failed.pop(name, None)
            self._start(name)

    def retry_failed(self) -> None:
        """Start those that could not be started and whose time has come (G-9)."""
        now = time.monotonic()
        for name in [name for name, (_, when) in self._failed.items() if when <= now]:
            self._start(name)

    def _start(self, name: str) -> None:
        """Start a provider in place of the one that runs under its name (G-5)."""
        config = self._configs[name]
        if isinstance(config, UnavailableProviderConfig):
            # Only another configuration can change that: no retries.
            self.log.error("Provider %s is not served: %s", name, config.reason)
            self._replace(name, None)
            return
        old = self.running.get(name)
        if old is not None:
            self._guard(name, "idle", old.idle)
        provider: Provider | None = None
        try:
            made = Drivers.get(config.driver.name).getProvider(config)
            provider = check_instance(made, Provider, f"driver {config.driver.name!r}: getProvider()")
            provider.zk = self._zk
            provider.start(self._zk)
        except Exception as error:
            attempts = self._failed.get(name, (0, 0.0))[0] + 1
            delay = min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** (attempts - 1))
            self._failed[name] = (attempts, time.monotonic() + delay)
            if isinstance(error, ConfigError):
                # Its text says all that a user needs; a traceback would hide it.
                self.log.error("Provider %s cannot be started, trying again in %g s: %s", name, delay, error)
            else:
                self.log.exception("Provider %s cannot be started, trying again in %g s", name, delay)
            self._replace(name, None)
            if provider is not None:
                self._stop_half_started(name, provider)
            return
        self._failed.pop(name, None)
        self.log.info("Started provider %s (driver %s)", name, config.driver.name)
        self._replace(name, provider)

    def _stop_half_started(self, name: str, provider: Provider) -> None:
        """What it has started already must not stay: there will be another attempt, and another."""
        try:
            provider.stop()
        except Exception as error:  # noqa: BLE001 - it was not complete, so this may well fail
            self.log.debug("Provider %s: stop() after a failed start: %r", name, error)

    def _replace(self, name: str, new: Provider | None) -> None:
        running = dict(self.running)
        old = running.pop(name, None)
        if new is not None:
            running[name] = new
        self.running = running
        self._failed = {failed: state for failed, state in self._failed.items() if failed in self._configs}
        if old is not None:
            self._guard(name, "idle", old.idle)
            self._guard(name, "stop", old.stop)

    def stop(self, timeout: float) -> None:
        """Stop all and wait for them, together at most ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        running, self.running = self.running, {}
        for name, provider in running.items():
            self._guard(name, "stop", provider.stop)
        for name, provider in running.items():
            # join() has no timeout of its own.
            thread = threading.Thread(
                target=self._guard, args=(name, "join", provider.join), name=f"Join-{name}", daemon=True
            )
            thread.start()
            self._ending.append(thread)
        for thread in self._ending:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self.log.warning("%s: the provider still works, not waiting for it", thread.name)

    def _guard(self, name: str, what: str, call: object) -> None:
        try:
            call()  # type: ignore[operator]
        except Exception:
            self.log.exception("Provider %s: error in %s()", name, what)
