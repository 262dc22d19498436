# SPDX-License-Identifier: Apache-2.0
"""`StatsWorker`: sends the gauges of a launcher (reference/metrics 1, 2, 5).

One launcher of the system, the leader, sends what concerns all of them: nodes and requests. Every launcher
sends its own limits and internals.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from nodepool import log_names
from nodepool.clock import monotonic
from nodepool.driver import gateway
from nodepool.guard import Guard
from nodepool.metrics import reports
from nodepool.metrics.registry import Registry
from nodepool.metrics.statsd import REGISTRY, StatsdClient
from nodepool.model.component import PoolComponent
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.runtime.worker import PassThread
from nodepool.zk.locks import Election
from nodepool.zk.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from nodepool.config.objects import Config
    from nodepool.runtime.providers import Providers
    from nodepool.zk.caches import NodepoolCache

#: Node gauges are sent at most this often, however many changes there are.
CHANGES_SECONDS: Final = 1.0
#: Limits are sent this often: the released launcher sends them with each pass of a pool.
LIMITS_SECONDS: Final = 1.0
#: Internals are sent this often; who does not lead asks this often whether the leader is gone.
INTERNALS_SECONDS: Final = 10.0
#: The leader sends node gauges at least this often: a datagram may get lost, a statsd server be restarted.
REFRESH_SECONDS: Final = 60.0
#: Groups of gauges: two of this launcher, one of the whole system.
LIMITS: Final = "limits"
INTERNALS: Final = "internals"
SYSTEM: Final = "system"


class StatsWorker(PassThread):
    """A thread that owns all of its state; `changed` and `stop` may be called from any other.

    :param client: statsd; its address is looked up here.
    :param registry: gets all gauges, and sends them to statsd.
    :param is_leader: is this launcher the one that sends node gauges? May block for a few round trips.
    :param nodes: all nodes of the system, from a cache.
    :param requests: all requests, from a cache.
    :param pools: all registered pools.
    :param limits: of this launcher, from `gauges.limit_gauges`. Called once a second.
    :param internals: of this launcher, e.g. from `zk_internals`.
    :param clock: monotonic seconds.
    """

    error_text = "Metrics could not be sent"

    def __init__(
        self,
        client: StatsdClient,
        registry: Registry,
        *,
        is_leader: Callable[[], bool],
        nodes: Callable[[], Iterable[Node]],
        requests: Callable[[], Iterable[NodeRequest]],
        pools: Callable[[], Iterable[PoolComponent]],
        limits: Callable[[], reports.Gauges],
        internals: Callable[[], reports.Gauges],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__("StatsWorker", logging.getLogger(log_names.STATS_WORKER), LIMITS_SECONDS)
        self._client = client
        self._registry = registry
        self._is_leader = is_leader
        self._nodes = nodes
        self._requests = requests
        self._pools = pools
        self._limits = limits
        self._internals = internals
        self._clock = clock
        self._changed = threading.Event()
        self._leading = False
        self._limits_at = -math.inf
        self._internals_at = -math.inf
        self._election_at = -math.inf
        self._sent_at = -math.inf

    @property
    def leading(self) -> bool:
        """Does this launcher send the gauges of all nodes and requests? Any thread."""
        return self._leading

    def changed(self, record_id: str = "") -> None:
        """A node, request or pool changed. For cache listeners: thread-safe, cheap, does not block.

        :param record_id: not looked at.
        """
        self._changed.set()

    def run_once(self) -> float:
        """One pass: send what is due.

        :return: seconds until the next pass.
        """
        now = self._clock()
        self._client.resolve()
        # A mistake in one group of gauges must not end the others.
        if now >= self._limits_at + LIMITS_SECONDS:
            self._limits_at = now
            with Guard(self.log, "Gauges of limits could not be sent"):
                self._registry.replace(LIMITS, self._limits())
        if now >= self._internals_at + INTERNALS_SECONDS:
            self._internals_at = now
            with Guard(self.log, "Gauges of the launcher could not be sent"):
                self._registry.replace(INTERNALS, self._internals())
        if self._lead(now) and self._due(now):
            self.emit_once()
            self._sent_at = now
        return max(0.0, self._limits_at + LIMITS_SECONDS - now)

    def emit_once(self) -> None:
        """Send all node and request gauges now, whoever leads."""
        # Before the reading: what changes meanwhile is sent in the next pass.
        self._changed.clear()
        pools = list(self._pools())
        values = reports.node_gauges(self._nodes(), pools)
        values.update(reports.request_gauges(self._requests(), pools))
        self._registry.replace(SYSTEM, values)

    def _lead(self, now: float) -> bool:
        """Ask at each pass while we lead (costs nothing), and seldom while we do not."""
        if not self._leading and now < self._election_at + INTERNALS_SECONDS:
            self._changed.clear()
            return False
        self._election_at = now
        was_leading, self._leading = self._leading, self._is_leader()
        if self._leading and not was_leading:
            self._sent_at = -math.inf
        elif was_leading and not self._leading:
            self._registry.forget(SYSTEM)
        return self._leading

    def _due(self, now: float) -> bool:
        if now >= self._sent_at + REFRESH_SECONDS:
            return True
        return self._changed.is_set() and now >= self._sent_at + CHANGES_SECONDS


def zk_internals(hostname: str, zk: ZooKeeper) -> reports.Gauges:
    """The gauges of a launcher's ZooKeeper connection and caches (reference/metrics 5). Does not block.

    There is no cache of images, and no cache plays back what it missed; these gauges are 0, so that dashboards
    find them.

    :param hostname: of the launcher, as ``gethostname()`` returns it.
    :raises ZKConnectionError: not connected yet.
    """
    caches: dict[str, tuple[int, int]] = {"node": (0, 0), "request": (0, 0), "image": (0, 0)}
    if zk.cache is not None:
        caches["node"] = (zk.cache.nodes.pending_reads, 0)
        caches["request"] = (zk.cache.requests.pending_reads, 0)
    return reports.internal_gauges(hostname, zk.client.queued_calls, caches)


# Wires the `StatsWorker` of a launcher.


def make_stats_worker(
    client: StatsdClient, zk: ZooKeeper, cache: NodepoolCache, providers: Providers, config: Callable[[], Config]
) -> StatsWorker:
    """The worker that sends the gauges of a launcher to statsd; it is not started."""
    hostname = socket.gethostname()
    election = Election(zk.client, "stats", f"{hostname}-{os.getpid()}")

    def limits() -> reports.Gauges:
        current = config()
        max_servers = {
            name: [math.inf if pool.max_servers is None else pool.max_servers for pool in provider.pools.values()]
            for name, provider in current.providers.items()
        }
        return reports.limit_gauges(max_servers, current.tenant_resource_limits)

    def internals() -> reports.Gauges:
        is_open = {name: gateway.paused_reason(provider) is not None for name, provider in providers.running.items()}
        return {**reports.circuit_gauges(hostname, is_open), **zk_internals(hostname, zk)}

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
