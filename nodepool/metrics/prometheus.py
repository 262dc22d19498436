# SPDX-License-Identifier: Apache-2.0
"""Metrics as families of prometheus_client, with the names of Nodepool's mapping for statsd_exporter.

Last the metrics that are computed when Prometheus asks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, UnknownMetricFamily
from prometheus_client.metrics_core import Metric as Family

from nodepool.metrics import catalog
from nodepool.metrics.registry import MAX_SERIES, Distribution, Metric, MetricKind, Series, Value

T = TypeVar("T", bound=Value)

#: Longer values of labels are cut, in characters.
MOST_CHARACTERS: Final = 200


@dataclass(frozen=True)
class View:
    """A name under which a timer is shown, with some of its labels; series that agree in these are added up.

    :param wanted: a series without a value for this label is left out; None = all are shown.
    """

    name: str
    labels: Sequence[str]
    wanted: str | None = None


#: Timers that statsd gets under several names. Each view has a number of events under its name, and the distribution
#: under the name with ``_timer``.
VIEWS: Final[Mapping[Metric, Sequence[View]]] = {
    catalog.LAUNCH: (
        View("nodepool_launch", ("result",)),
        View("nodepool_launch_by_provider", ("provider", "result")),
        View("nodepool_launch_by_provider_az", ("provider", "az", "result"), "az"),
        View("nodepool_launch_by_requestor", ("requestor", "result"), "requestor"),
    ),
    catalog.IMAGE_UPDATE: (View("nodepool_image_update", ("image", "provider")),),
}


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


def family_names(metric: Metric) -> list[str]:
    """The names of the samples of a metric, as queries have them."""
    if metric.kind is MetricKind.GAUGE:
        return [metric.name]
    if metric.kind is MetricKind.COUNTER:
        return [f"{metric.name}_total"]
    views = VIEWS.get(metric)
    bases = [metric.name] if views is None else [f"{view.name}_timer" for view in views]
    names = [f"{base}_{part}" for base in bases for part in ("bucket", "count", "sum")]
    return names + [view.name for view in views or ()]


def _numbers(metric: Metric, found: Mapping[tuple[str, ...], Value]) -> Family:
    make = GaugeMetricFamily if metric.kind is MetricKind.GAUGE else CounterMetricFamily
    family = make(metric.name, metric.help, labels=metric.labels)
    for labels, value in _shown(found):
        assert not isinstance(value, Distribution)
        family.add_metric(labels, value)
    return family


def _timers(metric: Metric, found: Mapping[tuple[str, ...], Value]) -> Iterator[Family]:
    views = VIEWS.get(metric)
    if views is None:
        yield _histogram(metric, metric.name, metric.labels, found)
        return
    for view in views:
        summed = _summed(metric, view, found)
        # Its name must not end in "_total", because dashboards know it without: so it cannot be told as a counter.
        counts = UnknownMetricFamily(view.name, f"{metric.help} How many there were.", labels=view.labels)
        for labels, value in _shown(summed):
            counts.add_metric(labels, value.count)
        yield counts
        yield _histogram(metric, f"{view.name}_timer", view.labels, summed)


def _summed(metric: Metric, view: View, found: Mapping[tuple[str, ...], Value]) -> dict[tuple[str, ...], Distribution]:
    places = [metric.labels.index(label) for label in view.labels]
    needed = None if view.wanted is None else metric.labels.index(view.wanted)
    summed: dict[tuple[str, ...], Distribution] = {}
    for values, one in found.items():
        assert isinstance(one, Distribution)
        if needed is None or values[needed]:
            key = tuple(values[place] for place in places)
            known = summed.get(key)
            summed[key] = one if known is None else known.added_to(one)
    return summed


def _histogram(metric: Metric, name: str, labels: Sequence[str], found: Mapping[tuple[str, ...], Value]) -> Family:
    family = HistogramMetricFamily(name, metric.help, labels=labels)
    bounds = [*metric.buckets, math.inf]
    for values, one in _shown(found):
        assert isinstance(one, Distribution)
        sums = itertools.accumulate(one.buckets)
        buckets = [(_bound(bound), count) for bound, count in zip(bounds, sums, strict=True)]
        family.add_metric(values, buckets, one.sum_seconds)
    return family


def _bound(bound: float) -> str:
    return "+Inf" if bound == math.inf else str(float(bound))


def _shown(found: Mapping[tuple[str, ...], T]) -> Iterable[tuple[tuple[str, ...], T]]:
    """Series with values as an exposition may have them: each combination once, and not too many."""
    shown: dict[tuple[str, ...], T] = {}
    for values, one in found.items():
        shown.setdefault(tuple(_text(value) for value in values), one)
    return itertools.islice(shown.items(), MAX_SERIES)


def _text(value: str) -> str:
    """A value of a label: of any text of another program something that can be sent."""
    return value[:MOST_CHARACTERS].encode("utf-8", "replace").decode()


# Metrics that are computed when Prometheus asks, from what the web pages show, too (reference/metrics 9).


def _gauge(name: str, labels: str, help_text: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, tuple(labels.split()), help_text)


BUILD_INFO: Final = _gauge(
    "nodepool_build_info",
    "version kind",
    "1, with the release and the kind of the daemon: launcher, builder or web.",
)
CONNECTED: Final = _gauge("nodepool_zookeeper_connected", "", "1 while there is a connection to ZooKeeper, else 0.")
COMPLETE: Final = _gauge(
    "nodepool_caches_complete",
    "",
    "1 if the caches have all that ZooKeeper has, else 0: then other values may be old.",
)
LOOP_AGE: Final = _gauge("nodepool_main_loop_age_seconds", "", "How long ago the main loop turned.")
THREADS: Final = _gauge(
    "nodepool_threads",
    "thread",
    "Threads that are alive, by name; what tells threads of one kind apart is left out.",
)
REQUESTS: Final = _gauge("nodepool_requests", "state", "Requests in each state.")
WAITING: Final = _gauge(
    "nodepool_requests_waiting",
    "label code",
    "Requests that nobody has begun to serve, by label and by what they wait for. A request counts once for "
    "each of its labels.",
)
OLDEST: Final = _gauge(
    "nodepool_requests_oldest_seconds",
    "label",
    "How long ago the oldest request that is not answered was submitted, by label.",
)
LIMIT: Final = _gauge(
    "nodepool_limit",
    "scope provider pool tenant resource",
    "Limits of pools, providers, clouds and tenants; ram in MiB. One that is not limited is left out.",
)
LIMIT_USED: Final = _gauge("nodepool_limit_used", "scope provider pool tenant resource", "What our nodes use of them.")
LIMIT_OTHERS: Final = _gauge(
    "nodepool_limit_used_by_others",
    "scope provider pool tenant resource",
    "What others use of the same quota, as far as it is known.",
)
POOL_STATE: Final = _gauge(
    "nodepool_pool_state",
    "provider pool state code",
    "Launchers in which the pool is in a state, and why.",
)
POOL_LAUNCHES: Final = _gauge(
    "nodepool_pool_launches_running",
    "provider pool",
    "Launches that run now, in all launchers.",
)
POOL_SLOW: Final = _gauge(
    "nodepool_pool_launches_slow",
    "provider pool",
    "Launches that take much longer than is usual, in all launchers.",
)
LABEL_BROKEN: Final = _gauge(
    "nodepool_label_unavailable",
    "provider pool label code",
    "1 for each label that a pool cannot serve now.",
)
HOSTS: Final = _gauge(
    "nodepool_hosts",
    "provider pool state",
    "Static hosts that are up, down, quarantined, or not checked yet (unknown).",
)
HOST_UP: Final = _gauge(
    "nodepool_host_up",
    "provider pool host",
    "1 if all launchers can reach the static host, else 0. Hosts that are not checked yet are left out.",
)
LAUNCHER_INFO: Final = _gauge(
    "nodepool_launcher_info",
    "launcher version config state",
    "1 for each launcher, with the hash of its configuration.",
)
LAUNCHER_START: Final = _gauge(
    "nodepool_launcher_start_time_seconds",
    "launcher",
    "When the launcher started, in seconds since the epoch.",
)
RELOAD_OK: Final = _gauge(
    "nodepool_config_last_reload_successful",
    "launcher",
    "1 if the last changed configuration was applied, 0 if it was refused.",
)
RELOAD_TIME: Final = _gauge(
    "nodepool_config_last_reload_time_seconds",
    "launcher",
    "When that was, in seconds since the epoch.",
)
ABSENT: Final = _gauge(
    "nodepool_provider_absent",
    "launcher provider",
    "1 for each provider of its configuration that a launcher could not start.",
)
MAINTENANCE: Final = _gauge(
    "nodepool_maintenance",
    "kind name mode",
    "1 for what operators paused, drained or quarantined.",
)
OWNERLESS: Final = _gauge(
    "nodepool_ownerless_records",
    "kind name",
    "Nodes, uploads and builds of a provider, pool, label or builder that no daemon serves.",
)
BUILDS: Final = _gauge("nodepool_image_builds", "image state", "Builds of an image in each state.")
UPLOADS: Final = _gauge(
    "nodepool_image_uploads",
    "image provider state",
    "Uploads of an image to a provider in each state.",
)
BUILD_TIME: Final = _gauge(
    "nodepool_image_last_ready_build_time_seconds",
    "image",
    "When the newest ready build of an image became ready, in seconds since the epoch.",
)
UPLOAD_TIME: Final = _gauge(
    "nodepool_image_current_upload_time_seconds",
    "image provider",
    "When the upload became ready from which a provider's nodes are made, in seconds since the epoch.",
)
ZOOKEEPER_LATENCY: Final = Metric(
    "nodepool_zookeeper_latency_seconds",
    MetricKind.TIMER,
    (),
    "How long ZooKeeper took to answer writes and pings of this process.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)

#: All of the above, in the order of the documentation.
ALL: Final = (
    BUILD_INFO,
    CONNECTED,
    COMPLETE,
    LOOP_AGE,
    THREADS,
    REQUESTS,
    WAITING,
    OLDEST,
    LIMIT,
    LIMIT_USED,
    LIMIT_OTHERS,
    POOL_STATE,
    POOL_LAUNCHES,
    POOL_SLOW,
    LABEL_BROKEN,
    HOSTS,
    HOST_UP,
    LAUNCHER_INFO,
    LAUNCHER_START,
    RELOAD_OK,
    RELOAD_TIME,
    ABSENT,
    MAINTENANCE,
    OWNERLESS,
    BUILDS,
    UPLOADS,
    BUILD_TIME,
    UPLOAD_TIME,
    ZOOKEEPER_LATENCY,
)
#: What is also in `nodepool.metrics.catalog`, and is computed anew for Prometheus.
RECOMPUTED: Final = (
    catalog.NODES,
    catalog.NODES_BY_LABEL,
    catalog.NODES_BY_PROVIDER,
    catalog.ADDRESSABLE_REQUESTS,
    catalog.MAX_SERVERS,
    catalog.TENANT_LIMIT,
)
