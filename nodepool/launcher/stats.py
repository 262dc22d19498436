# SPDX-License-Identifier: Apache-2.0
"""Wires the `StatsWorker` of a launcher."""

from __future__ import annotations

import math
import os
import socket
from typing import TYPE_CHECKING

from nodepool.launcher.stats_worker import StatsWorker, zk_internals
from nodepool.metrics import gauges
from nodepool.metrics.process import REGISTRY
from nodepool.metrics.statsd import shared_client
from nodepool.zk.election import Election

if TYPE_CHECKING:
    from nodepool.launcher.supervisor import NodePool


def make_stats_worker(nodepool: NodePool) -> StatsWorker | None:
    """A worker for statsd, or None when no statsd server is configured."""
    client = shared_client()
    if client is None:
        return None
    hostname = socket.gethostname().partition(".")[0]
    election = Election(nodepool.client, "stats", f"{hostname}-{os.getpid()}")

    def own_gauges() -> gauges.Gauges:
        config = nodepool.config
        limits = {
            name: [math.inf if pool.max_servers is None else pool.max_servers for pool in provider.pools.values()]
            for name, provider in config.providers.items()
        }
        values = gauges.limit_gauges(limits, config.tenant_resource_limits)
        is_open = {name: provider.pausedReason() is not None for name, provider in nodepool.providers().items()}
        values.update(gauges.circuit_gauges(hostname, is_open))
        values.update(zk_internals(hostname, nodepool.getZK()))
        return values

    return StatsWorker(
        client,
        REGISTRY,
        is_leader=election.is_leader,
        nodes=nodepool.cache.nodes.values,
        requests=nodepool.cache.requests.values,
        pools=nodepool.cache.pools.values,
        own_gauges=own_gauges,
    )
