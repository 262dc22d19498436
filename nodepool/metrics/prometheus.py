# SPDX-License-Identifier: Apache-2.0
"""Metrics as families of prometheus_client, with the names of Nodepool's mapping for statsd_exporter."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, UnknownMetricFamily
from prometheus_client.metrics_core import Metric as Family

from nodepool.metrics.registry import MAX_SERIES, Distribution, Metric, MetricKind, Series, Value, labels_of

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
    """Series with values as an exposition may have them: each combination once, and not too many."""
    shown: dict[tuple[str, ...], T] = {}
    for values, one in found.items():
        shown.setdefault(tuple(_text(value) for value in values), one)
    return itertools.islice(shown.items(), MAX_SERIES)


def _text(value: str) -> str:
    """A value of a label: of any text of another program something that can be sent."""
    return value[:MOST_CHARACTERS].encode("utf-8", "replace").decode()
