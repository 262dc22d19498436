# SPDX-License-Identifier: Apache-2.0
"""A launcher without threads of its own: the test makes each pass of its workers itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nodepool.launcher.pool.worker import PoolWorker
from nodepool.launcher.supervisor import NodePool
from nodepool.runtime.worker import PassThread, Worker
from tests.support.local_launcher import LocalLauncher
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer

T = TypeVar("T")


class StillLauncher:
    """Connected and configured like a running one. Only the providers' own threads run.

    :param monkeypatch: keeps the workers' threads from starting.
    """

    def __init__(
        self,
        path: Path,
        zookeeper: ZooKeeperServer,
        chroot: str,
        settings: dict[str, Any],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(PassThread, "start", lambda worker: None)
        monkeypatch.setattr(PassThread, "is_alive", lambda worker: not worker.stopping)
        monkeypatch.setattr(PassThread, "join", lambda worker, timeout=None: None)
        self.local = LocalLauncher(path, zookeeper, chroot, settings)
        self.nodepool: NodePool = self.local.nodepool
        self.nodepool.start()
        self.nodepool.client.connect(20)
        self.nodepool.begin()

    def worker(self, provider: str = "one", pool: str = "main") -> PoolWorker:
        """A pool worker, registered and with a complete view."""
        worker = self.nodepool.pool_threads.get(provider, pool)
        assert worker is not None
        wait_for("the pool sees itself", lambda: self._registered(worker))
        return worker

    def _registered(self, worker: PoolWorker) -> bool:
        for one in self.nodepool.pool_threads.current():
            one.run_once()
        return any(pool.id == worker.launcher_id for pool in worker.context.registered_pools())

    def settle(self) -> None:
        """Waits until the caches know all that ZooKeeper knows now."""
        self.nodepool.client.kazoo.sync("/")
        assert self.nodepool.cache.wait_settled(10)

    def knows_requests(self, count: int) -> None:
        """Waits until its cache has so many requests."""
        wait_for("the requests are known", lambda: len(self.nodepool.cache.requests) == count)

    def passes(self, worker: Worker, what: str, look: Callable[[], T]) -> T:
        """Makes passes until ``look`` returns something true, and returns that."""

        def pass_and_look() -> T:
            self.settle()
            worker.run_once()
            return look()

        return wait_for(what, pass_and_look)

    def stop(self) -> None:
        self.nodepool.end()
