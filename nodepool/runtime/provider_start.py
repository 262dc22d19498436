# SPDX-License-Identifier: Apache-2.0
"""`ProviderStart`: one attempt to start a provider, in a thread of its own, because a driver may hang there."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from nodepool.driver import gateway
from nodepool.driver.framework.class_checks import check_instance
from nodepool.driver.interface import Provider
from nodepool.driver.registry import Drivers
from nodepool.guard import OnError, as_exception, settle

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.zk.zookeeper import ZooKeeper


def facade_for(config: ProviderConfig, zk: ZooKeeper) -> ZooKeeper:
    """What the driver of a provider gets of ZooKeeper: one that is not built-in may be written for 11.0.0."""
    if not Drivers.is_extra(config.driver.name):
        return zk
    from nodepool.compat.released_zookeeper import facade_for_extra_driver

    return facade_for_extra_driver(zk)


def start_now(config: ProviderConfig, zk: ZooKeeper) -> Provider:
    """Make and start the provider of a section. Blocks as long as the driver does; raises what it raises."""
    made = gateway.get_provider(config.name, Drivers.get(config.driver.name), config)
    provider: Provider = check_instance(made, Provider, f"driver {config.driver.name!r}: getProvider()")
    # What it has started already must not stay after an error: there will be another attempt, and another.
    with OnError(lambda _: gateway.stop_provider(provider)):
        _complete(provider, config)
        provider.zk = facade = facade_for(config, zk)
        gateway.start_provider(provider, facade)
    return provider


class ProviderStart:
    """Begins at once. ``_lock`` guards the outcome; it is not held while the driver works."""

    def __init__(self, config: ProviderConfig, zk: ZooKeeper) -> None:
        self._config = config
        self._zk = zk
        self._lock = threading.Lock()
        self._outcome: Future[Provider] = Future()
        self._forgotten = False
        self._ended = threading.Event()
        threading.Thread(target=self._run, name=f"Start-{config.name}", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Has it ended, or does it within so many seconds?"""
        return self._ended.wait(seconds)

    def error(self) -> Exception | None:
        """What the driver raised; after the end."""
        error = self._outcome.exception(0)
        return None if error is None else as_exception(error)

    def result(self) -> Provider:
        """The started provider; after the end. Raises what the driver raised."""
        if not self._ended.is_set():
            raise RuntimeError(f"provider {self._config.name} is still being started")
        return self._outcome.result()

    def forget(self) -> None:
        """Nobody wants it any more: it is stopped as soon as it has started. Does not wait for that."""
        with self._lock:
            self._forgotten = True
            if not self._ended.is_set():
                return
        if self.error() is None:
            # Who forgets is the main thread, and a driver may hang here, too.
            gateway.stop_provider.begin(self.result())

    def _run(self) -> None:
        outcome: Future[Provider] = Future()
        settle([outcome], lambda: start_now(self._config, self._zk))
        with self._lock:
            self._outcome = outcome
            wanted = not self._forgotten
            self._ended.set()
        if not wanted and self.error() is None:
            gateway.stop_provider(self.result())


def _complete(provider: Provider, config: ProviderConfig) -> None:
    """Set what a driver did not: one provider without a name must not end a loop over all of them."""
    if not getattr(provider, "name", ""):
        provider.name = config.name
    if getattr(provider, "provider", None) is None:
        provider.provider = config
