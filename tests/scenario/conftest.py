# SPDX-License-Identifier: Apache-2.0
"""Whole launchers inside the test process, with the fake driver and a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.maintenance_store import MaintenanceStore
from tests.support.local_launcher import LocalLauncher, launcher_settings
from tests.support.pool_znodes import PoolZnodes
from tests.support.zookeeper import ZooKeeperServer

Launch = Callable[..., LocalLauncher]


@pytest.fixture
def launch(tmp_path: Path, zookeeper: ZooKeeperServer, chroot: str, znodes: PoolZnodes) -> Iterator[Launch]:
    """Starts launchers: ``launch(providers, labels={name: settings}, **top_level)``; all are stopped at the end."""
    launchers: list[LocalLauncher] = []

    def start(providers: list[dict[str, Any]], labels: dict[str, Any] | None = None, **extra: Any) -> LocalLauncher:
        path = tmp_path / f"launcher{len(launchers) + 1}.yaml"
        launcher = LocalLauncher(path, zookeeper, chroot, launcher_settings(providers, labels, extra))
        launcher.start()
        launchers.append(launcher)
        return launcher

    yield start
    for launcher in launchers:
        launcher.stop()


@pytest.fixture
def store(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[MaintenanceStore]:
    """The hand of an operator."""
    client = ZooKeeperClient(zookeeper.tls_hosts(chroot), **zookeeper.certificates.options())
    client.connect(timeout=30)
    yield MaintenanceStore(client)
    client.disconnect()
