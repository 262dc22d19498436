# SPDX-License-Identifier: Apache-2.0
"""How long ZooKeeper takes, as it is counted and as it is told."""

from __future__ import annotations

from nodepool.metrics.prometheus import ZOOKEEPER_LATENCY
from nodepool.zk.reply import BOUNDS, Latency


def test_counts() -> None:
    latency = Latency()
    for seconds in (0.0005, 0.001, 0.0011, 100.0):
        latency.add(seconds)
    assert (latency.counts[0], latency.counts[1], latency.counts[-1]) == (2, 1, 1)
    assert latency.sum_seconds == 100.0026


def test_bounds_are_those_of_the_metric() -> None:
    """The two modules do not know each other."""
    assert ZOOKEEPER_LATENCY.buckets == BOUNDS
