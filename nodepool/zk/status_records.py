# SPDX-License-Identifier: Apache-2.0
"""Status records of pools and launchers, for commands: read directly and not from a cache."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from nodepool import log_names
from nodepool.model.launcher_status import LauncherStatus
from nodepool.model.pool_status import PoolStatus
from nodepool.model.record import InvalidRecord
from nodepool.zk import status
from nodepool.zk.client import ZooKeeperClient

T = TypeVar("T")

#: Kinds of status records.
POOL: Final = "pool"
LAUNCHER: Final = "launcher"

log = logging.getLogger(log_names.ZOOKEEPER)


def read_pools(client: ZooKeeperClient) -> list[PoolStatus]:
    """What all pools of all launchers tell, by provider, pool and host; bad records are logged and left out.

    Blocks for two round trips, however many there are. Raises ZKException.
    """
    found = _read(client, POOL, PoolStatus.of_record)
    return sorted(found, key=lambda pool: (pool.provider, pool.pool, pool.host, pool.id))


def read_launchers(client: ZooKeeperClient) -> list[LauncherStatus]:
    """What all launchers tell, by host; as `read_pools`."""
    found = _read(client, LAUNCHER, LauncherStatus.of_record)
    return sorted(found, key=lambda launcher: (launcher.host, launcher.pid))


def _read(client: ZooKeeperClient, kind: str, parse: Callable[[Mapping[str, Any]], T]) -> list[T]:
    found: list[T] = []
    for name, record in status.read_all(client, kind).items():
        try:
            found.append(parse(record))
        except InvalidRecord as problem:
            log.error("Ignoring %s: %s", status.path_of(kind, name), problem)
    return found
