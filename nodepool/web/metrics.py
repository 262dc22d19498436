# SPDX-License-Identifier: Apache-2.0
"""``/metrics``: what Prometheus asks for, in its text format or as OpenMetrics (reference/metrics 8, 9)."""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
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

from nodepool.guard import Guard
from nodepool.metrics import computed_catalog as catalog
from nodepool.metrics.process import REGISTRY
from nodepool.metrics.prometheus import families
from nodepool.web.computed_gauges import computed_gauges

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family
    from starlette.requests import Request

    from nodepool.metrics.gauges import Gauges
    from nodepool.metrics.registry import Registry, Series, Value
    from nodepool.web.site import Site

log = logging.getLogger("nodepool.web")

_OPENMETRICS: Final = "application/openmetrics-text"
#: Of the name of a thread: its kind. The rest names what it works for, or is a number.
_THREAD_KIND: Final = re.compile(r"[A-Za-z_]+")


class SiteCollector(Collector):
    """What a process counted, what a snapshot shows, and the process itself.

    :param registry: of the process.
    """

    def __init__(self, site: Site, registry: Registry) -> None:
        self._site = site
        self._registry = registry

    def collect(self) -> Iterator[Family]:
        """For any thread. Does not block; an error in one part does not hide the others."""
        recomputed = frozenset(catalog.RECOMPUTED)
        values: dict[Series, Value] = {
            series: value for series, value in self._registry.snapshot().items() if series.metric not in recomputed
        }
        parts: tuple[Callable[[], Mapping[Series, Value]], ...] = (
            self._of_process,
            self._of_snapshot,
            self._site.internals,
        )
        for part in parts:
            with Guard(log, "Some metrics could not be computed"):
                values.update(part())
        return families(values)

    def _of_snapshot(self) -> Mapping[Series, Value]:
        return {**computed_gauges(self._site.snapshots.latest())}

    def _of_process(self) -> Mapping[Series, Value]:
        site = self._site
        return {
            catalog.BUILD_INFO.series(site.version, site.daemon.kind): 1,
            catalog.CONNECTED.series(): int(site.daemon.connected),
            catalog.COMPLETE.series(): int(site.snapshots.complete),
            catalog.LOOP_AGE.series(): site.loop_age_seconds,
            **thread_gauges(thread.name for thread in threading.enumerate()),
        }


def thread_gauges(names: Iterable[str]) -> Gauges:
    """Threads by kind.

    :param names: of those that are alive, e.g. ``PoolWorker.cloud-1-main``.
    """
    kinds = Counter(match[0] if (match := _THREAD_KIND.match(name)) else "other" for name in names)
    return {catalog.THREADS.series(kind): count for kind, count in kinds.items()}


def routes(site: Site, registry: Registry = REGISTRY) -> list[BaseRoute]:
    """``/metrics``.

    :param registry: what the process counted.
    """
    collectors = CollectorRegistry()
    collectors.register(SiteCollector(site, registry))
    for of_process in (ProcessCollector, PlatformCollector, GCCollector):
        of_process(registry=collectors)

    def metrics(request: Request) -> Response:
        # Not as it came: a version that is no number is an error for the library.
        accepted = request.headers.get("accept", "")
        encode, content_type = choose_encoder(_OPENMETRICS if _OPENMETRICS in accepted else "")
        return Response(encode(collectors), headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    return [Route("/metrics", metrics)]
