# SPDX-License-Identifier: Apache-2.0
"""Wires the `StatsWorker` of a launcher."""

from __future__ import annotations

import math
import os
import socket
from typing import TYPE_CHECKING

from nodepool.driver import gateway
from nodepool.launcher.stats_worker import StatsWorker, zk_internals
from nodepool.metrics import gauges
from nodepool.metrics.process import REGISTRY
from nodepool.zk.election import Election

if TYPE_CHECKING:
    from collections.abc import Callable

    from nodepool.config.objects import Config
    from nodepool.metrics.statsd import StatsdClient
    from nodepool.runtime.providers import Providers
    from nodepool.zk.nodepool_cache import NodepoolCache
    from nodepool.zk.zookeeper import ZooKeeper


def make_stats_worker(
    client: StatsdClient, zk: ZooKeeper, cache: NodepoolCache, providers: Providers, config: Callable[[], Config]
) -> StatsWorker:
    """The worker that sends the gauges of a launcher to statsd; it is not started."""
    hostname = socket.gethostname()
    election = Election(zk.client, "stats", f"{hostname}-{os.getpid()}")

    def limits() -> gauges.Gauges:
        current = config()
        max_servers = {
            name: [math.inf if pool.max_servers is None else pool.max_servers for pool in provider.pools.values()]
            for name, provider in current.providers.items()
        }
        return gauges.limit_gauges(max_servers, current.tenant_resource_limits)

    def internals() -> gauges.Gauges:
        is_open = {name: gateway.paused_reason(provider) is not None for name, provider in providers.running.items()}
        return {**gauges.circuit_gauges(hostname, is_open), **zk_internals(hostname, zk)}

    return StatsWorker(
        client,
        REGISTRY,
        is_leader=election.is_leader,
        nodes=cache.nodes.values,
        requests=cache.requests.values,
        pools=cache.pools.values,
        limits=limits,
        internals=internals,
    )
