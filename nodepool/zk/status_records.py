# SPDX-License-Identifier: Apache-2.0
"""Status records of pools and launchers, for commands: read directly. `zk.status_cache` has them for daemons."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
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
BUILDER: Final = "builder"

log = logging.getLogger(log_names.ZOOKEEPER)


def read_pools(client: ZooKeeperClient) -> list[PoolStatus]:
    """What all pools of all launchers tell, by provider, pool and host; bad records are logged and left out.

    Blocks for two round trips, however many there are. Raises ZKException.
    """
    return in_order_of_pools(_read(client, POOL, PoolStatus.of_record))


def read_launchers(client: ZooKeeperClient) -> list[LauncherStatus]:
    """What all launchers tell, by host; as `read_pools`."""
    return in_order_of_launchers(_read(client, LAUNCHER, LauncherStatus.of_record))


def in_order_of_pools(found: Iterable[PoolStatus]) -> list[PoolStatus]:
    return sorted(found, key=lambda pool: (pool.provider, pool.pool, pool.host, pool.id))


def in_order_of_launchers(found: Iterable[LauncherStatus]) -> list[LauncherStatus]:
    return sorted(found, key=lambda launcher: (launcher.host, launcher.pid))


def _read(client: ZooKeeperClient, kind: str, parse: Callable[[Mapping[str, Any]], T]) -> list[T]:
    found: list[T] = []
    for name, record in status.read_all(client, kind).items():
        try:
            found.append(parse(record))
        except InvalidRecord as problem:
            log.error("Ignoring %s: %s", status.path_of(kind, name), problem)
    return found
