# SPDX-License-Identifier: Apache-2.0
"""``/metrics``: what Prometheus asks for, in its text format or as OpenMetrics (reference/metrics 8, 9)."""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from nodepool.clock import monotonic
from nodepool.guard import Guard
from nodepool.metrics import prometheus as catalog
from nodepool.metrics.prometheus import families
from nodepool.metrics.statsd import REGISTRY
from nodepool.web.computed_gauges import computed_gauges

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family
    from starlette.requests import Request

    from nodepool.metrics.registry import Metric, Registry, Series, Value
    from nodepool.metrics.reports import Gauges
    from nodepool.web.site import Daemon, Site

log = logging.getLogger("nodepool.web")

_OPENMETRICS: Final = "application/openmetrics-text"
#: Of the name of a thread: its kind. The rest names what it works for, or is a number.
_THREAD_KIND: Final = re.compile(r"[A-Za-z_]+")


#: Computes a part of the metrics. Any thread; does not block.
Source = Callable[[], Mapping["Series", "Value"]]


class DaemonCollector(Collector):
    """What a process counted, and what is computed when it is asked for.

    :param registry: of the process.
    :param sources: a later one counts where they agree in a series.
    :param recomputed: what is not taken from the registry, because a source has it.
    """

    def __init__(self, registry: Registry, sources: Sequence[Source], recomputed: Iterable[Metric] = ()) -> None:
        self._registry = registry
        self._sources = sources
        self._recomputed = frozenset(recomputed)

    def collect(self) -> Iterator[Family]:
        """For any thread. Does not block; an error in one source does not hide the others."""
        values: dict[Series, Value] = {
            series: value
            for series, value in self._registry.snapshot().items()
            if series.metric not in self._recomputed
        }
        for source in self._sources:
            with Guard(log, "Some metrics could not be computed"):
                values.update(source())
        return families(values)


def daemon_gauges(daemon: Daemon, version: str) -> Gauges:
    """What each daemon has. Does not block."""
    return {
        catalog.BUILD_INFO.series(version, daemon.kind): 1,
        catalog.CONNECTED.series(): int(daemon.connected),
        catalog.LOOP_AGE.series(): max(0.0, monotonic() - daemon.last_loop),
        **thread_gauges(thread.name for thread in threading.enumerate()),
    }


def thread_gauges(names: Iterable[str]) -> Gauges:
    """Threads by kind.

    :param names: of those that are alive, e.g. ``PoolWorker.cloud-1-main``.
    """
    kinds = Counter(match[0] if (match := _THREAD_KIND.match(name)) else "other" for name in names)
    return {catalog.THREADS.series(kind): count for kind, count in kinds.items()}


def metrics_route(collector: DaemonCollector) -> Route:
    """``/metrics`` of a daemon."""
    collectors = CollectorRegistry()
    collectors.register(collector)
    for of_process in (ProcessCollector, PlatformCollector, GCCollector):
        of_process(registry=collectors)

    def metrics(request: Request) -> Response:
        # Not as it came: a version that is no number is an error for the library.
        accepted = request.headers.get("accept", "")
        encode, content_type = choose_encoder(_OPENMETRICS if _OPENMETRICS in accepted else "")
        return Response(encode(collectors), headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    return Route("/metrics", metrics)


def routes(site: Site, registry: Registry = REGISTRY) -> list[BaseRoute]:
    """``/metrics`` of a launcher or of ``nodepool-web``.

    :param registry: what the process counted.
    """

    def of_snapshot() -> Mapping[Series, Value]:
        snapshot = site.snapshots.latest()
        return {catalog.COMPLETE.series(): int(snapshot.complete), **computed_gauges(snapshot)}

    sources: Sequence[Source] = (lambda: {**daemon_gauges(site.daemon, site.version)}, of_snapshot, site.internals)
    return [metrics_route(DaemonCollector(registry, sources, catalog.RECOMPUTED))]


def builder_routes(daemon: Daemon, version: str, internals: Source) -> list[Route]:
    """``/metrics`` of a builder."""
    sources: Sequence[Source] = (lambda: {**daemon_gauges(daemon, version)}, internals)
    return [metrics_route(DaemonCollector(REGISTRY, sources))]
