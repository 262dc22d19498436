# SPDX-License-Identifier: Apache-2.0
"""`PoolThreads`: one `PoolWorker` for each pool of each provider that runs (rules G-6, G-7, G-10)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from nodepool import log_names

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.interface import Provider
    from nodepool.launcher.pool.worker import PoolWorker


class PoolThreads:
    """Changed by the main thread only; any thread may ask.

    :param make: makes the worker of a pool from the names of provider and pool; it is not started yet.
    """

    log = logging.getLogger(log_names.NODEPOOL)

    def __init__(self, make: Callable[[str, str], PoolWorker]) -> None:
        self._make = make
        #: Replaced as a whole, never changed in place.
        self._workers: Mapping[tuple[str, str], PoolWorker] = {}
        #: Pools that are not configured any more and finish what runs. Replaced as a whole, too.
        self._retiring: list[PoolWorker] = []

    # -- any thread --

    def current(self) -> list[PoolWorker]:
        """The workers of all configured pools."""
        return list(self._workers.values())

    def all(self) -> list[PoolWorker]:
        """Also those that retire."""
        return [*self._workers.values(), *self._retiring]

    def get(self, provider_name: str | None, pool_name: str | None) -> PoolWorker | None:
        """The worker of a configured pool."""
        return self._workers.get((provider_name or "", pool_name or ""))

    def of_provider(self, provider_name: str) -> list[PoolWorker]:
        """The workers of a provider's pools, also those that retire."""
        return [worker for worker in self.all() if worker.provider_name == provider_name]

    def requests_in_progress(self) -> set[str]:
        """Requests that this launcher holds."""
        return {handler.request.key for worker in self.all() for handler in list(worker.handlers)}

    # -- the main thread --

    def retire_others(self, configs: Mapping[str, ProviderConfig]) -> None:
        """Let pools that are not configured any more finish what runs; they end by themselves."""
        self._retire_all_but({(name, pool) for name, provider in configs.items() for pool in provider.pools})

    def update(self, running: Mapping[str, Provider]) -> None:
        """Make the set that of the providers that run, and replace workers that died."""
        wanted = {(name, pool) for name, provider in running.items() for pool in provider.provider.pools}
        self._retire_all_but(wanted)
        self._retiring = [worker for worker in self._retiring if worker.is_alive()]
        dead = [key for key, worker in self._workers.items() if not worker.is_alive()]
        new = [key for key in wanted if key not in self._workers] + dead
        if not new:
            return
        workers = dict(self._workers)
        for key in new:
            if key in dead:
                self.log.error("Pool worker %s died, starting another", workers[key].name)
                # Registered, but serving nobody, it would keep requests from failing.
                workers[key].entry.remove()
            workers[key] = self._make(*key)
        self._workers = workers
        for key in new:
            workers[key].start()

    def look_again(self) -> None:
        """Any request and any node may have to be judged anew: the configuration changed."""
        for worker in self.current():
            worker.request_changed("")
            worker.node_changed("")

    def _retire_all_but(self, wanted: Collection[tuple[str, str]]) -> None:
        gone = [worker for key, worker in self._workers.items() if key not in wanted]
        if not gone:
            return
        self._retiring = [*self._retiring, *gone]
        self._workers = {key: worker for key, worker in self._workers.items() if key in wanted}
        for worker in gone:
            worker.retire()
