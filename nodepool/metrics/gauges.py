# SPDX-License-Identifier: Apache-2.0
"""Gauges as pure values: series -> number (reference/metrics 1, 2, 5)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from nodepool.metrics import catalog
from nodepool.metrics.registry import Series
from nodepool.model import states
from nodepool.model.component import PoolComponent
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest

Gauges = dict[Series, float]

#: Limits of a tenant that are always sent.
_TENANT_LIMITS: Final = ("cores", "instances", "ram")


def node_gauges(nodes: Iterable[Node], pools: Iterable[PoolComponent]) -> Gauges:
    """Nodes by state: of the system, by label, by provider. Every known name is there, with 0 if need be.

    :param nodes: all nodes of the system.
    :param pools: all registered pools; their labels and providers are known even without nodes.
    """
    total: Counter[str] = Counter()
    by_label: Counter[tuple[str, str]] = Counter()
    by_provider: Counter[tuple[str, str]] = Counter()
    labels: set[str] = set()
    providers: set[str] = set()
    for pool in pools:
        labels.update(pool.supported_labels)
        providers.add(pool.provider_name)
    for node in nodes:
        state = node.state
        total[state] += 1
        for label in set(node.type):
            labels.add(label)
            by_label[label, state] += 1
        if node.provider:
            providers.add(node.provider)
            by_provider[node.provider, state] += 1
    gauges: Gauges = {catalog.NODES.series(state): total[state] for state in states.NODE_STATES}
    for label in sorted(labels):
        for state in states.NODE_STATES:
            gauges[catalog.NODES_BY_LABEL.series(label, state)] = by_label[label, state]
    for provider in sorted(providers):
        for state in states.NODE_STATES:
            gauges[catalog.NODES_BY_PROVIDER.series(provider, state)] = by_provider[provider, state]
    return gauges


def request_gauges(requests: Iterable[NodeRequest], pools: Iterable[PoolComponent]) -> Gauges:
    """Requests in any state that each pool could serve, because it supports all their labels.

    Pools of several launchers with the same provider and name are one pool.
    """
    by_labels: Counter[frozenset[str]] = Counter(frozenset(request.node_types) for request in requests)
    supported: dict[Series, list[frozenset[str]]] = {}
    for pool in pools:
        key = catalog.ADDRESSABLE_REQUESTS.series(pool.provider_name, pool.name)
        supported.setdefault(key, []).append(frozenset(pool.supported_labels))
    return {
        key: sum(n for wanted, n in by_labels.items() if any(wanted <= labels for labels in choices))
        for key, choices in supported.items()
    }


def limit_gauges(
    max_servers: Mapping[str, Iterable[float]], tenant_limits: Mapping[str, Mapping[str, float]]
) -> Gauges:
    """Configured limits.

    Unlimited is sent as ``inf``, as Nodepool always did: statsd_exporter understands it, and a gauge that is not
    sent any more would go on showing the old limit.

    :param max_servers: provider -> ``max-servers`` of each of its pools (``math.inf``: unlimited).
    :param tenant_limits: tenant -> quota name (``cores``, ``instances``, ``ram``, ...) -> limit.
    """
    gauges: Gauges = {catalog.MAX_SERVERS.series(provider): sum(values) for provider, values in max_servers.items()}
    for tenant, limits in tenant_limits.items():
        for limit in _TENANT_LIMITS:
            gauges[catalog.TENANT_LIMIT.series(tenant, limit)] = limits.get(limit, math.inf)
        for limit, value in limits.items():
            gauges[catalog.TENANT_LIMIT.series(tenant, limit)] = value
    return gauges


def circuit_gauges(hostname: str, is_open: Mapping[str, bool]) -> Gauges:
    """Which providers one launcher launches nothing in, because their clouds keep failing.

    :param hostname: of the launcher, as ``gethostname()`` returns it.
    :param is_open: provider -> is its circuit breaker open?
    """
    return {catalog.CIRCUIT_OPEN.series(hostname, provider): int(opened) for provider, opened in is_open.items()}


def internal_gauges(hostname: str, connection_queue: int, caches: Mapping[str, tuple[int, int]]) -> Gauges:
    """The inside of one launcher.

    :param hostname: of the launcher, as ``gethostname()`` returns it.
    :param connection_queue: calls that wait to be sent to ZooKeeper.
    :param caches: ``node``, ``request`` and ``image`` -> (changes that are being read, changes noted for later).
    """
    gauges: Gauges = {catalog.ZK_QUEUE.series(hostname, "client.connection_queue"): connection_queue}
    for cache, (event_queue, playback_queue) in caches.items():
        gauges[catalog.ZK_QUEUE.series(hostname, f"{cache}_cache.event_queue")] = event_queue
        gauges[catalog.ZK_QUEUE.series(hostname, f"{cache}_cache.playback_queue")] = playback_queue
    return gauges
