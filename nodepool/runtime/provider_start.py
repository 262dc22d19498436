# SPDX-License-Identifier: Apache-2.0
"""`ProviderStart`: one attempt to start a provider, in a thread of its own, because a driver may hang there."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from nodepool.driver import gateway
from nodepool.driver.framework.class_checks import check_instance
from nodepool.driver.interface import Provider
from nodepool.driver.registry import Drivers

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.zk.zookeeper import ZooKeeper


class ProviderStart:
    """Begins at once. ``_lock`` guards the outcome; it is not held while the driver works."""

    def __init__(self, config: ProviderConfig, zk: ZooKeeper) -> None:
        self._config = config
        self._zk = zk
        self._lock = threading.Lock()
        self._provider: Provider | None = None
        self._error: Exception | None = None
        self._forgotten = False
        self._ended = threading.Event()
        threading.Thread(target=self._run, name=f"Start-{config.name}", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Has it ended, or does it within so many seconds?"""
        return self._ended.wait(seconds)

    def result(self) -> Provider:
        """The started provider; after the end. Raises what the driver raised."""
        if self._error is not None:
            raise self._error
        if self._provider is None:
            raise RuntimeError(f"provider {self._config.name} is still being started")
        return self._provider

    def forget(self) -> None:
        """Nobody wants it any more: it is stopped as soon as it has started. Does not wait for that."""
        with self._lock:
            self._forgotten = True
            if not self._ended.is_set():
                return
        if self._provider is not None:
            # Who forgets is the main thread, and a driver may hang here, too.
            gateway.stop_provider.begin(self._provider)

    def _run(self) -> None:
        config = self._config
        provider: Provider | None = None
        error: Exception | None = None
        try:
            made = gateway.get_provider(config.name, Drivers.get(config.driver.name), config)
            provider = check_instance(made, Provider, f"driver {config.driver.name!r}: getProvider()")
            _complete(provider, config)
            provider.zk = self._zk
            gateway.start_provider(provider, self._zk)
        except Exception as problem:  # noqa: BLE001 - raised by `result`
            error = problem
            if provider is not None:
                # What it has started already must not stay: there will be another attempt, and another.
                gateway.stop_provider(provider)
                provider = None
        with self._lock:
            self._provider, self._error = provider, error
            wanted = not self._forgotten
            self._ended.set()
        if provider is not None and not wanted:
            gateway.stop_provider(provider)


def _complete(provider: Provider, config: ProviderConfig) -> None:
    """Set what a driver did not: one provider without a name must not end a loop over all of them."""
    if not getattr(provider, "name", ""):
        provider.name = config.name
    if getattr(provider, "provider", None) is None:
        provider.provider = config
