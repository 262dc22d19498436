# SPDX-License-Identifier: Apache-2.0
"""`ProviderStart`: one attempt to start a provider, in a thread of its own, because a driver may hang there."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from nodepool.driver.framework.class_checks import check_instance
from nodepool.driver.interface import Provider
from nodepool.driver.registry import Drivers

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.zk.zookeeper import ZooKeeper

log = logging.getLogger("nodepool.NodePool")


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
            name = f"Stop-{self._config.name}"
            threading.Thread(target=self._stop, args=(self._provider,), name=name, daemon=True).start()

    def _run(self) -> None:
        config = self._config
        provider: Provider | None = None
        error: Exception | None = None
        try:
            made = Drivers.get(config.driver.name).getProvider(config)
            provider = check_instance(made, Provider, f"driver {config.driver.name!r}: getProvider()")
            provider.zk = self._zk
            provider.start(self._zk)
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - raised by `result`
            # SystemExit: a driver's library may call sys.exit().
            error = (
                problem if isinstance(problem, Exception) else RuntimeError(f"the driver called sys.exit({problem})")
            )
            if provider is not None:
                # What it has started already must not stay: there will be another attempt, and another.
                self._stop(provider)
                provider = None
        with self._lock:
            self._provider, self._error = provider, error
            wanted = not self._forgotten
            self._ended.set()
        if provider is not None and not wanted:
            self._stop(provider)

    def _stop(self, provider: Provider) -> None:
        try:
            provider.stop()
        except Exception as error:  # noqa: BLE001 - it was not complete, so this may well fail
            log.debug("Provider %s: stop() after a start that came to nothing: %r", self._config.name, error)
