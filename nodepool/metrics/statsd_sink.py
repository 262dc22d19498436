# SPDX-License-Identifier: Apache-2.0
"""`StatsdSink`: passes metrics on to a statsd server (reference/metrics)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodepool.metrics.registry import Series
    from nodepool.metrics.statsd import StatsdClient


class StatsdSink:
    """Any thread. Neither blocks nor raises.

    :param client: asked at each call; None = nothing is sent.
    """

    def __init__(self, client: Callable[[], StatsdClient | None]) -> None:
        self._client = client

    def gauges(self, values: Mapping[Series, float]) -> None:
        client = self._client()
        if client is not None:
            client.gauges({name: value for series, value in values.items() for name in statsd_names(series)})

    def counted(self, series: Series, amount: float) -> None:
        client = self._client()
        if client is not None:
            for name in statsd_names(series):
                client.incr(name, amount)

    def timed(self, series: Series, seconds: float) -> None:
        """A timer under each name and, unless the metric wants none, a counter."""
        client = self._client()
        names = statsd_names(series)
        if client is None or not names:
            return
        with client.pipeline() as pipe:
            for name in names:
                pipe.timing(name, seconds * 1000)
                if series.metric.statsd_counts:
                    pipe.incr(name)


def statsd_names(series: Series) -> Sequence[str]:
    """The names under which statsd gets a series; none if it does not."""
    statsd = series.metric.statsd
    return () if statsd is None else statsd(*series.values)
