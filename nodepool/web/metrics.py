# SPDX-License-Identifier: Apache-2.0
"""``/metrics``: what Prometheus asks for, in its text format or as OpenMetrics (reference/metrics 8, 9).

First the route with the metrics of the process, of its connection and its caches, then families as Prometheus has them,
then gauges of what a snapshot shows.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, UnknownMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from starlette.responses import Response
from starlette.routing import Route

from nodepool.clock import monotonic
from nodepool.guard import Guard
from nodepool.listing.nodes import host_state
from nodepool.metrics import catalog, reports
from nodepool.metrics.registry import MAX_SERIES, Distribution, MetricKind, Series, Value, labels_of
from nodepool.metrics.statsd import REGISTRY
from nodepool.model import states
from nodepool.plan.explain import causes
from nodepool.plan.observed import ownerless
from nodepool.plan.pool_summary import PoolSummary, summarize

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.metrics.registry import Metric, Registry
    from nodepool.metrics.reports import Gauges
    from nodepool.model.image import ImagesView
    from nodepool.model.status import LauncherStatus, LimitStatus
    from nodepool.plan.observed import Observed
    from nodepool.runtime.daemon import ConnectedDaemon
    from nodepool.web.snapshot import SnapshotMaker, WebSnapshot
    from nodepool.zk.caches import NodepoolCache
    from nodepool.zk.client import ZooKeeperClient

log = logging.getLogger("nodepool.web")

_OPENMETRICS: Final = "application/openmetrics-text"
#: Of the name of a thread: its kind. The rest names what it works for, or is a number.
_THREAD_KIND: Final = re.compile(r"[A-Za-z_]+")


def route(
    daemon: ConnectedDaemon,
    version: str,
    cache: NodepoolCache | None,
    snapshots: SnapshotMaker | None,
    registry: Registry = REGISTRY,
) -> Route:
    """``/metrics`` of a daemon.

    :param version: of this release.
    :param cache: None = the daemon has none, and no snapshots either.
    :param registry: what the process counted.
    """

    def of_snapshot() -> Mapping[Series, Value]:
        if snapshots is None:
            return {}
        snapshot = snapshots.latest()
        return {catalog.COMPLETE.series(): int(snapshot.complete), **computed_gauges(snapshot)}

    sources: Sequence[Callable[[], Mapping[Series, Value]]] = (
        lambda: {**daemon_gauges(daemon, version)},
        of_snapshot,
        lambda: connection_metrics(daemon.client, cache),
    )
    recomputed = () if snapshots is None else catalog.RECOMPUTED

    class DaemonCollector(Collector):
        """What a process counted, and what is computed when it is asked for."""

        def collect(self) -> Iterator[Family]:
            """For any thread. Does not block; an error in one source does not hide the others."""
            counted = registry.snapshot().items()
            values: dict[Series, Value] = {one: value for one, value in counted if one.metric not in recomputed}
            for source in sources:
                with Guard(log, "Some metrics could not be computed"):
                    values.update(source())
            return families(values)

    collectors = CollectorRegistry()
    collectors.register(DaemonCollector())
    for of_process in (ProcessCollector, PlatformCollector, GCCollector):
        of_process(registry=collectors)

    def metrics(request: Request) -> Response:
        # Not as it came: a version that is no number is an error for the library.
        accepted = request.headers.get("accept", "")
        encode, content_type = choose_encoder(_OPENMETRICS if _OPENMETRICS in accepted else "")
        return Response(encode(collectors), headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    return Route("/metrics", metrics)


def daemon_gauges(daemon: ConnectedDaemon, version: str) -> Gauges:
    """What each daemon has. Does not block."""
    names = (thread.name for thread in threading.enumerate())
    kinds = Counter(match[0] if (match := _THREAD_KIND.match(name)) else "other" for name in names)
    return {
        catalog.BUILD_INFO.series(version, daemon.kind): 1,
        catalog.CONNECTED.series(): int(daemon.connected),
        catalog.LOOP_AGE.series(): max(0.0, monotonic() - daemon.last_loop),
        **{catalog.THREADS.series(kind): count for kind, count in kinds.items()},
    }


def connection_metrics(client: ZooKeeperClient, cache: NodepoolCache | None) -> Mapping[Series, Value]:
    """Of the connection and the caches (reference/metrics 5, 9). Nothing while there was no connection yet."""
    latency = client.latency
    if latency is None:
        return {}
    counts = list(latency.counts)
    answers = Distribution(sum(counts), latency.sum_seconds, counts)
    queues: Gauges = {}
    if cache is not None:
        reads = {"node": (cache.nodes.pending_reads, 0), "request": (cache.requests.pending_reads, 0), "image": (0, 0)}
        queues = reports.internal_gauges(socket.gethostname(), client.queued_calls, reads)
    return {catalog.ZOOKEEPER_LATENCY.series(): answers, **queues}


# Metrics as families of prometheus_client, with the names of Nodepool's mapping for statsd_exporter.

T = TypeVar("T", bound=Value)

#: Longer values of labels are cut, in characters.
MOST_CHARACTERS: Final = 200


def families(values: Mapping[Series, Value]) -> Iterator[Family]:
    """All metrics that have a series, each once. Does not block.

    :param values: of each metric at most `MAX_SERIES` are shown.
    """
    by_metric: dict[Metric, dict[tuple[str, ...], Value]] = {}
    for series, value in values.items():
        by_metric.setdefault(series.metric, {})[series.values] = value
    for metric, found in by_metric.items():
        if metric.kind is MetricKind.TIMER:
            yield from _timers(metric, found)
        else:
            yield _numbers(metric, found)


def _numbers(metric: Metric, found: Mapping[tuple[str, ...], Value]) -> Family:
    make = GaugeMetricFamily if metric.kind is MetricKind.GAUGE else CounterMetricFamily
    family = make(metric.name, metric.help, labels=metric.labels)
    for labels, value in _shown(found):
        assert not isinstance(value, Distribution)
        family.add_metric(labels, value)
    return family


def _timers(metric: Metric, found: Mapping[tuple[str, ...], Value]) -> Iterator[Family]:
    """Of each view the number of events under its name, and the distribution under the name with ``_timer``."""
    if not metric.views:
        yield _histogram(metric, metric.name, metric.labels, found)
    for name, form in metric.views.items():
        labels = labels_of(form)
        summed = _summed([metric.labels.index(label) for label in labels], found)
        # Its name must not end in "_total", because dashboards know it without: so it cannot be a counter.
        counts = UnknownMetricFamily(name, f"{metric.help} How many there were.", labels=labels)
        for values, value in _shown(summed):
            counts.add_metric(values, value.count)
        yield counts
        yield _histogram(metric, f"{name}_timer", labels, summed)


def _summed(places: Sequence[int], found: Mapping[tuple[str, ...], Value]) -> dict[tuple[str, ...], Distribution]:
    """Series that agree in some of their labels together; those that have no value for one of them are left out."""
    summed: dict[tuple[str, ...], Distribution] = {}
    for values, one in found.items():
        assert isinstance(one, Distribution)
        if all(key := tuple(values[place] for place in places)):
            known = summed.get(key)
            summed[key] = one if known is None else known.added_to(one)
    return summed


def _histogram(metric: Metric, name: str, labels: Sequence[str], found: Mapping[tuple[str, ...], Value]) -> Family:
    family = HistogramMetricFamily(name, metric.help, labels=labels)
    bounds = [*(str(float(bound)) for bound in metric.buckets), "+Inf"]
    for values, one in _shown(found):
        assert isinstance(one, Distribution)
        buckets = list(zip(bounds, itertools.accumulate(one.buckets), strict=True))
        family.add_metric(values, buckets, one.sum_seconds)
    return family


def _shown(found: Mapping[tuple[str, ...], T]) -> Iterable[tuple[tuple[str, ...], T]]:
    """Series with values as an exposition may have them: any text can be sent, each combination once, not too many."""
    shown: dict[tuple[str, ...], T] = {}
    for values, one in found.items():
        shown.setdefault(tuple(text[:MOST_CHARACTERS].encode("utf-8", "replace").decode() for text in values), one)
    return itertools.islice(shown.items(), MAX_SERIES)


# Gauges of what a `WebSnapshot` shows, as pure functions: series and numbers (reference/metrics 9).

Found = Iterator[tuple["Series", float]]
_TENANT: Final = "tenant:"
#: Scopes of limits that all pools of a provider share.
_OF_PROVIDER: Final = ("provider", "cloud")


def computed_gauges(snapshot: WebSnapshot) -> Gauges:
    """All gauges of a snapshot. Does not block."""
    seen = snapshot.observed
    pools = summarize(seen.statuses)
    return {
        **reports.node_gauges(seen.nodes.values(), seen.registered),
        **reports.request_gauges(seen.requests.values(), seen.registered),
        **_configured_limits(pools, snapshot.launchers),
        **dict(_waiting_gauges(seen)),
        **dict(_limit_gauges(pools)),
        **dict(_pool_gauges(seen, pools)),
        **dict(_host_gauges(pools)),
        **dict(_launcher_gauges(snapshot.launchers)),
        **{
            catalog.MAINTENANCE.series(one.kind, one.name, one.mode.value): 1
            for one in seen.maintenance
            if not one.is_over(seen.now)
        },
        **{catalog.OWNERLESS.series(one.kind, one.name): one.count for one in ownerless(seen)},
        **dict(_image_gauges(snapshot.images)),
    }


def _waiting_gauges(seen: Observed) -> Found:
    """Requests by state; of those that wait, for what."""
    by_state = Counter(str(request.state) for request in seen.requests.values())
    yield from ((catalog.REQUESTS.series(state), by_state[state]) for state in states.REQUEST_STATES)
    why = causes([request for request in seen.waiting if request.state == states.REQUESTED], seen)
    # A series that comes and goes cannot be averaged.
    oldest = dict.fromkeys(sorted(seen.labels), 0.0)
    waiting: Counter[tuple[str, str]] = Counter()
    for request in seen.waiting:
        age = max(0.0, seen.now - (request.created_time or seen.now))
        for label in sorted(set(request.node_types)):
            oldest[label] = max(oldest.get(label, 0.0), age)
            if request.state == states.REQUESTED:
                waiting[label, why[request.key].code] += 1
    yield from ((catalog.OLDEST.series(label), age) for label, age in oldest.items())
    yield from ((catalog.WAITING.series(*key), count) for key, count in waiting.items())


def _limit_gauges(pools: Iterable[PoolSummary]) -> Found:
    """Limits, and what is used of them; what several pools share is there once, as it was reported last."""
    newest: dict[tuple[str, ...], LimitStatus] = {}
    for pool in pools:
        for limit in pool.limits:
            key = _limit_labels(pool, limit)
            if key not in newest or (limit.asked_at or 0.0) > (newest[key].asked_at or 0.0):
                newest[key] = limit
    for key, limit in newest.items():
        if limit.limit is not None:
            yield catalog.LIMIT.series(*key), limit.limit
        yield catalog.LIMIT_USED.series(*key), limit.used
        yield catalog.LIMIT_OTHERS.series(*key), limit.others


def _limit_labels(pool: PoolSummary, limit: LimitStatus) -> tuple[str, ...]:
    """Scope, provider, pool, tenant and resource; '' = it is not of one."""
    if limit.scope.startswith(_TENANT):
        return "tenant", "", "", limit.scope.removeprefix(_TENANT), limit.resource
    of_pool = "" if limit.scope in _OF_PROVIDER else pool.pool
    return limit.scope, pool.provider, of_pool, "", limit.resource


def _configured_limits(pools: Iterable[PoolSummary], launchers: Iterable[LauncherStatus]) -> Gauges:
    """With the names that statsd has, of all launchers together."""
    max_servers: dict[str, list[float]] = {}
    for pool in pools:
        limits = (one.limit for one in pool.limits if (one.scope, one.resource) == ("pool", "instances"))
        limit = next(limits, None)
        max_servers.setdefault(pool.provider, []).append(math.inf if limit is None else limit)
    tenants: dict[str, Mapping[str, float]] = {}
    for launcher in launchers:
        tenants.update(launcher.tenant_limits)
    return reports.limit_gauges(max_servers, tenants)


def _pool_gauges(seen: Observed, pools: Iterable[PoolSummary]) -> Found:
    by_state = Counter((one.provider, one.pool, one.state, one.code or "") for one in seen.statuses)
    yield from ((catalog.POOL_STATE.series(*key), count) for key, count in by_state.items())
    for pool in pools:
        yield catalog.POOL_LAUNCHES.series(pool.provider, pool.pool), pool.launches.running
        yield catalog.POOL_SLOW.series(pool.provider, pool.pool), sum(launch.slow for launch in pool.launching)
        for name, label in pool.labels.items():
            yield catalog.LABEL_BROKEN.series(pool.provider, pool.pool, name, label.code), 1


def _host_gauges(pools: Iterable[PoolSummary]) -> Found:
    hosts = [(pool.provider, host.pool or pool.pool, host) for pool in pools for host in pool.hosts]
    by_state = Counter((provider, pool, host_state(host)) for provider, pool, host in hosts)
    for (provider, pool, state), count in by_state.items():
        yield catalog.HOSTS.series(provider, pool, "unknown" if state == "not checked" else state), count
    for provider, pool, host in hosts:
        if host.up is not None:
            yield catalog.HOST_UP.series(provider, pool, host.name), int(host.up)


def _launcher_gauges(launchers: Sequence[LauncherStatus]) -> Found:
    for launcher in launchers:
        name = launcher.host
        yield catalog.LAUNCHER_INFO.series(name, launcher.version, launcher.config, launcher.state), 1
        yield catalog.LAUNCHER_START.series(name), launcher.since
        yield from ((catalog.ABSENT.series(name, absent.name), 1) for absent in launcher.absent)
        if launcher.reload is not None:
            yield catalog.RELOAD_OK.series(name), int(launcher.reload.ok)
            yield catalog.RELOAD_TIME.series(name), launcher.reload.at


def _image_gauges(images: ImagesView) -> Found:
    """Builds and uploads by state, and how new the newest are."""
    for name, image in images.images.items():
        by_state = Counter(build.state for build in image.builds.values())
        yield from ((catalog.BUILDS.series(name, state), by_state[state]) for state in states.BUILD_STATES)
        if ready := image.ready_builds():
            yield catalog.BUILD_TIME.series(name), ready[0].time
        all_uploads = (upload for build in image.builds.values() for upload in build.all_uploads())
        uploads = Counter((upload.provider_name, str(upload.state)) for upload in all_uploads)
        for provider in sorted({provider for provider, _ in uploads}):
            for state in states.UPLOAD_STATES:
                yield catalog.UPLOADS.series(name, provider, state), uploads[provider, state]
            if (current := image.current_upload(provider)) is not None:
                yield catalog.UPLOAD_TIME.series(name, provider), current.state_time or 0.0
