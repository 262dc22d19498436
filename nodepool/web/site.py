# SPDX-License-Identifier: Apache-2.0
"""What the groups of routes are given: the data, the daemon that they are part of, and the settings."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from nodepool.clock import monotonic
from nodepool.metrics import reports
from nodepool.metrics.catalog import ZOOKEEPER_LATENCY
from nodepool.metrics.registry import Distribution

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nodepool.metrics.registry import Series, Value
    from nodepool.web.changes import Access
    from nodepool.web.snapshot import SnapshotMaker
    from nodepool.zk.caches import NodepoolCache
    from nodepool.zk.client import ZooKeeperClient
    from nodepool.zk.reply import Latency

#: A main loop that has not turned for so long is stuck.
STUCK_SECONDS: Final = 120.0


class Daemon(Protocol):
    """What the pages know of the daemon that serves them, e.g. `nodepool.launcher.supervisor.NodePool`."""

    #: ``launcher``, ``builder`` or ``web``.
    kind: str

    @property
    def ready(self) -> threading.Event:
        """Set once it serves."""

    @property
    def last_loop(self) -> float:
        """Monotonic seconds of the last turn of its main loop."""

    @property
    def connected(self) -> bool:
        """Is there a connection to ZooKeeper now?"""

    @property
    def reload_errors(self) -> Sequence[str]:
        """Why the configuration files as they stand are not in effect, perhaps in part; empty = they are."""


@dataclass(frozen=True)
class Site:
    """One web application.

    :param version: of this release.
    :param zuul_url: where Zuul's pages are, for links; None = there are none.
    :param builder_url: where the pages of a builder are, with ``{}`` for its host; None = builders have none.
    :param internals: metrics of the inside of the process, for ``/metrics``. Any thread; does not block.
    :param access: None = everybody may look, and nobody can change anything.
    """

    daemon: Daemon
    snapshots: SnapshotMaker
    version: str
    zuul_url: str | None = None
    builder_url: str | None = None
    internals: Callable[[], Mapping[Series, Value]] = dict
    access: Access | None = None

    @property
    def loop_age_seconds(self) -> float:
        """How long ago the main loop turned."""
        return max(0.0, monotonic() - self.daemon.last_loop)

    @property
    def alive(self) -> bool:
        """Does the daemon's main loop turn? One that has not begun yet is not stuck."""
        return not self.daemon.ready.is_set() or self.loop_age_seconds < STUCK_SECONDS

    @property
    def ready(self) -> bool:
        """Does it serve, is ZooKeeper there, and are the caches complete?"""
        return self.daemon.ready.is_set() and self.daemon.connected and self.snapshots.complete


# Metrics of the connection and the caches of a daemon, for ``/metrics`` (reference/metrics 5, 9).


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
