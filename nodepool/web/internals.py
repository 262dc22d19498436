# SPDX-License-Identifier: Apache-2.0
"""Metrics of the connection and the caches of a daemon, for ``/metrics`` (reference/metrics 5, 9)."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from nodepool.metrics import reports
from nodepool.metrics.prometheus import ZOOKEEPER_LATENCY
from nodepool.metrics.registry import Distribution

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodepool.metrics.registry import Series, Value
    from nodepool.zk.caches import NodepoolCache
    from nodepool.zk.client import ZooKeeperClient
    from nodepool.zk.reply import Latency


def connection_metrics(client: ZooKeeperClient, cache: NodepoolCache) -> Mapping[Series, Value]:
    """Nothing while there was no connection yet. Any thread; does not block."""
    if client.latency is None:
        return {}
    reads = {"node": (cache.nodes.pending_reads, 0), "request": (cache.requests.pending_reads, 0), "image": (0, 0)}
    return {
        **reports.internal_gauges(socket.gethostname(), client.queued_calls, reads),
        **latency_metrics(client),
    }


def latency_metrics(client: ZooKeeperClient) -> Mapping[Series, Value]:
    """The same without caches."""
    latency = client.latency
    return {} if latency is None else {ZOOKEEPER_LATENCY.series(): _distribution(latency)}


def _distribution(latency: Latency) -> Distribution:
    counts = list(latency.counts)
    return Distribution(sum(counts), latency.sum_seconds, counts)
