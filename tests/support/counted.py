# SPDX-License-Identifier: Apache-2.0
"""What the metrics of this process counted during a test."""

from __future__ import annotations

from nodepool.metrics.registry import REGISTRY, Distribution, Metric


class Counted:
    """Counts since it was made: other tests count, too.

    :param metric: a counter or a timer.
    """

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self._before = self._all()

    def _all(self) -> dict[tuple[str, ...], float]:
        return {
            series.values: value.count if isinstance(value, Distribution) else value
            for series, value in REGISTRY.snapshot().items()
            if series.metric is self._metric
        }

    def new(self) -> dict[tuple[str, ...], float]:
        """Labels -> how many more there are."""
        more = {values: count - self._before.get(values, 0) for values, count in self._all().items()}
        return {values: count for values, count in more.items() if count}
