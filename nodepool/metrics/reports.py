# SPDX-License-Identifier: Apache-2.0
"""What is reported to the metrics (reference/metrics 1 to 6 and 9), by subject.

First gauges of nodes, requests and limits, then builds and uploads, then launches, leaks, instances that ended, waits
of requests, and circuit breakers.
"""

from __future__ import annotations

import math
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from nodepool.metrics import catalog
from nodepool.metrics.registry import REGISTRY, Series
from nodepool.model import states
from nodepool.model.image import ImagesView, ImageView
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import PoolComponent

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
    pools = list(pools)
    labels = {label for pool in pools for label in pool.supported_labels}
    providers = {pool.provider_name for pool in pools}
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
    for metric, names, counts in (
        (catalog.NODES_BY_LABEL, labels, by_label),
        (catalog.NODES_BY_PROVIDER, providers, by_provider),
    ):
        for name in sorted(names):
            gauges.update({metric.series(name, state): counts[name, state] for state in states.NODE_STATES})
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
        for limit, value in {**dict.fromkeys(_TENANT_LIMITS, math.inf), **limits}.items():
            gauges[catalog.TENANT_LIMIT.series(tenant, limit)] = value
    return gauges


def circuit_gauges(hostname: str, is_open: Mapping[str, bool]) -> Gauges:
    """Which providers one launcher launches nothing in, because their clouds keep failing.

    :param hostname: of the launcher, as ``gethostname()`` returns it.
    :param is_open: provider -> is its circuit breaker open?
    """
    return {catalog.CIRCUIT_OPEN.series(hostname, provider): int(opened) for provider, opened in is_open.items()}


def internal_gauges(hostname: str, connection_queue: int, nodes: int, requests: int) -> Gauges:
    """The inside of one launcher.

    :param hostname: of the launcher, as ``gethostname()`` returns it.
    :param connection_queue: calls that wait to be sent to ZooKeeper.
    :param nodes, requests: changes of them that are being read.
    """
    queues = {"client.connection_queue": connection_queue}
    # There is no cache of images, and no cache plays back what it missed: 0, so that dashboards find these gauges.
    for cache, count in (("node", nodes), ("request", requests), ("image", 0)):
        queues |= {f"{cache}_cache.event_queue": count, f"{cache}_cache.playback_queue": 0}
    return {catalog.ZK_QUEUE.series(hostname, name): length for name, length in queues.items()}


# Builds of images: their ends, and what a builder does with each image (reference/metrics 6).

#: Values of the state of an image. Of an upload too, which has `UPLOADING` for the second.
IDLE, BUILDING, PAUSED = 0, 1, 3


def report_build_end(image: str, status: int, seconds: float, now: float) -> None:
    """Note the end of a build. Neither blocks nor raises.

    :param status: exit code; 0 = it succeeded.
    :param seconds: how long it took.
    :param now: seconds since the epoch.
    """
    REGISTRY.set(catalog.BUILD_RESULT.series(image), status)
    REGISTRY.time(catalog.BUILD_DURATION.series(image), seconds)
    REGISTRY.set(catalog.LAST_BUILD.series(image), int(now))


def report_sizes(image: str, sizes: Mapping[str, int]) -> None:
    """Note the size of a ready build.

    :param sizes: format -> bytes on the disk.
    """
    for image_format, size in sizes.items():
        REGISTRY.set(catalog.BUILD_SIZE.series(image, image_format), size)


def is_pending(view: ImageView) -> bool:
    """Is a request for a build still to be served (reference/zookeeper 6.3)?"""
    served = view.build_locked and bool(view.builds_in(states.BUILDING))
    return view.build_requested is not None and not served


def build_gauges(
    builder: str, workers: int, view: ImagesView, paused: Mapping[str, bool], building: Collection[str]
) -> Gauges:
    """What a builder does with its images.

    :param builder: FQDN of its host.
    :param workers: threads that build.
    :param paused: image of its configuration -> is it paused there?
    :param building: images that are being built here, each as often as it is.
    """
    pending = {name: is_pending(image) for name, image in view.images.items()}
    gauges: Gauges = {
        catalog.BUILD_REQUESTS.series(): sum(pending.values()),
        catalog.CURRENT_BUILDS.series(builder): len(building),
        catalog.BUILD_WORKERS.series(builder): workers,
    }
    for name in {*paused, *pending}:
        gauges[catalog.BUILD_REQUESTS_OF_IMAGE.series(name)] = int(pending.get(name, False))
    for name, is_paused in paused.items():
        state = BUILDING if name in building else PAUSED if is_paused or view.image(name).paused else IDLE
        gauges[catalog.BUILD_STATE.series(builder, name)] = state
    return gauges


# Gauges of the uploads of a builder (reference/metrics 6).

UPLOADING: Final = 2

#: Image and provider.
_Place = tuple[str, str]


def upload_gauges(builder: str, paused: Mapping[_Place, bool], running: Collection[_Place], workers: int) -> Gauges:
    """What a builder uploads.

    :param builder: FQDN.
    :param paused: every image that a provider uses -> are its uploads paused?
    :param running: uploads that run now.
    :param workers: threads that upload.
    """
    gauges: Gauges = {
        catalog.CURRENT_UPLOADS.series(builder): len(running),
        catalog.UPLOAD_WORKERS.series(builder): workers,
    }
    for place, is_paused in paused.items():
        state = UPLOADING if place in running else PAUSED if is_paused else IDLE
        gauges[catalog.UPLOAD_STATE.series(builder, *place)] = state
    return gauges


# Results of launches (reference/metrics 3).


def report_launch(
    result: str, duration_ms: float, *, provider: str, az: str | None = None, requestor: str | None = None
) -> None:
    """Note the result of a launch and how long it took. Neither blocks nor raises.

    :param result: ``ready`` or ``error.<class>``.
    :param duration_ms: milliseconds since the launch began, over all its attempts.
    :param provider: name of the provider.
    :param az: availability zone of the node, if it has one.
    :param requestor: of the request, if it has one.
    """
    REGISTRY.time(catalog.LAUNCH.series(result, provider, az or "", requestor or ""), duration_ms / 1000)


def report_boot(provider: str, seconds: float) -> None:
    """Note that a cloud shows an instance as running, so long after the attempt began. As `report_launch`."""
    REGISTRY.time(catalog.BOOT.series(provider), seconds)


def report_scan(provider: str, seconds: float) -> None:
    """Note that an instance could be logged in to, so long after that. As `report_launch`."""
    REGISTRY.time(catalog.SCAN.series(provider), seconds)


# Leaked resources that were deleted (reference/metrics 4).


def report_leaks(provider: str, resource: str) -> None:
    """Count a deleted resource. Neither blocks nor raises.

    :param provider: name of the provider.
    :param resource: plural, e.g. ``instances``, ``ports``.
    """
    REGISTRY.count(catalog.LEAKED.series(provider, resource))


# Instances that ended, and why (reference/metrics 9).


def report_instance_end(provider: str, reason: str) -> None:
    """Count an instance that ended. Neither blocks nor raises.

    :param provider: name of the provider.
    :param reason: code of the cloud, e.g. ``Server.SpotInstanceTermination``; "" = it gives none.
    """
    REGISTRY.count(catalog.INSTANCES_ENDED.series(provider, reason or "none"))


# How long requests waited (reference/metrics 9).


def report_wait(labels: Iterable[str], outcome: str, seconds: float) -> None:
    """Note that a request ended. Neither blocks nor raises.

    :param labels: of its nodes.
    :param outcome: ``fulfilled`` or ``failed``.
    :param seconds: since it was submitted; of clocks of two hosts, so it may be a little less than 0.
    """
    for label in sorted(set(labels)):
        REGISTRY.time(catalog.REQUEST_WAIT.series(label, outcome), max(0.0, seconds))


# Providers whose circuit breaker is open, because their cloud keeps failing. Nodepool 11 has no such metric.


def report_circuit_breaker(provider: str, opens: bool) -> None:
    """Note that a circuit breaker opens or closes. Neither blocks nor raises.

    :param provider: name of the provider.
    """
    REGISTRY.set(catalog.CIRCUIT_OPEN.series(socket.gethostname(), provider), int(opens))
    if opens:
        REGISTRY.count(catalog.CIRCUIT_OPENED.series(provider))
