# SPDX-License-Identifier: Apache-2.0
"""The registry: values in process, and what the sinks are told."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodepool.metrics import catalog, registry
from nodepool.metrics.registry import Distribution, Metric, MetricKind, Registry, Series
from nodepool.metrics.statsd import statsd_names

LEVEL = Metric("level", MetricKind.GAUGE, ("where",), "A gauge.")
EVENTS = Metric("events", MetricKind.COUNTER, ("where",), "A counter.")
WORK = Metric("work", MetricKind.TIMER, (), "A timer.", buckets=(0.1, 1.0))


class Recorder:
    """A sink that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def gauges(self, values: Mapping[Series, float]) -> None:
        self.told.append(dict(values))

    def counted(self, series: Series, amount: float) -> None:
        self.told.append((series, amount))

    def timed(self, series: Series, seconds: float) -> None:
        self.told.append((series, seconds))


@pytest.fixture
def sink() -> Recorder:
    return Recorder()


@pytest.fixture
def metrics(sink: Recorder) -> Registry:
    return Registry([sink])


def test_gauge(metrics: Registry, sink: Recorder) -> None:
    metrics.set(LEVEL.series("a"), 3)
    metrics.set(LEVEL.series("a"), 2)
    assert metrics.snapshot() == {LEVEL.series("a"): 2}
    assert sink.told == [{LEVEL.series("a"): 3}, {LEVEL.series("a"): 2}]


def test_counter(metrics: Registry, sink: Recorder) -> None:
    """The registry has the sum, the sinks get what is added."""
    metrics.count(EVENTS.series("a"))
    metrics.count(EVENTS.series("a"), 4)
    assert metrics.snapshot() == {EVENTS.series("a"): 5}
    assert sink.told == [(EVENTS.series("a"), 1), (EVENTS.series("a"), 4)]


def test_timer(metrics: Registry, sink: Recorder) -> None:
    """Each value falls into the first bucket whose bound is not below it."""
    for seconds in (0.05, 0.1, 0.5, 20.0):
        metrics.time(WORK.series(), seconds)
    assert metrics.snapshot() == {WORK.series(): Distribution(4, 20.65, [2, 1, 1])}
    assert sink.told == [(WORK.series(), seconds) for seconds in (0.05, 0.1, 0.5, 20.0)]


def test_snapshot_is_a_copy(metrics: Registry) -> None:
    metrics.time(WORK.series(), 0.5)
    before = metrics.snapshot()
    metrics.time(WORK.series(), 0.5)
    assert before == {WORK.series(): Distribution(1, 0.5, [0, 1, 0])}


def test_group(metrics: Registry, sink: Recorder) -> None:
    """A gauge that went is 0 for the sinks, once, and is not kept; one that was 0 already is not told again."""
    a, b, c = (LEVEL.series(where) for where in "abc")
    metrics.replace("group", {a: 1, b: 2, c: 0})
    metrics.replace("group", {a: 5})
    metrics.replace("group", {a: 5})
    assert sink.told == [{a: 1, b: 2, c: 0}, {b: 0, a: 5}, {a: 5}]
    assert metrics.snapshot() == {a: 5}


def test_groups_are_apart(metrics: Registry) -> None:
    metrics.replace("one", {LEVEL.series("a"): 1})
    metrics.replace("two", {LEVEL.series("b"): 2})
    metrics.replace("one", {})
    assert metrics.snapshot() == {LEVEL.series("b"): 2}


def test_forgotten_group(metrics: Registry, sink: Recorder) -> None:
    """Who does not lead any more keeps no old gauges, and says nothing of them."""
    metrics.replace("group", {LEVEL.series("a"): 1})
    sink.told.clear()
    metrics.forget("group")
    metrics.forget("group")
    metrics.replace("group", {})
    assert metrics.snapshot() == {}
    assert sink.told == [{}]


def test_labels_are_counted() -> None:
    with pytest.raises(TypeError, match="where"):
        LEVEL.series()


def test_bound_of_series(metrics: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Labels come from other programs: what is kept has a bound, and the log says so once."""
    monkeypatch.setattr(registry, "MAX_SERIES", 2)
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            metrics.count(EVENTS.series(str(number)))
    assert len(metrics.snapshot()) == 2
    assert [record.getMessage() for record in caplog.records] == ["Metric events has 2 series: no more are kept"]


def test_group_of_any_size(metrics: Registry, sink: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher may have thousands of labels: a group is kept whole, because it does not grow with time."""
    monkeypatch.setattr(registry, "MAX_SERIES", 2)
    many = {LEVEL.series(str(number)): 1.0 for number in range(5)}
    metrics.replace("group", many)
    assert metrics.snapshot() == many
    metrics.replace("group", {})
    assert sink.told == [many, dict.fromkeys(many, 0)]
    assert metrics.snapshot() == {}


def test_many_threads(metrics: Registry) -> None:
    """No count is lost."""

    def count() -> None:
        for _ in range(500):
            metrics.count(EVENTS.series("a"))

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(count)
    assert metrics.snapshot() == {EVENTS.series("a"): 2000}


@pytest.mark.parametrize("metric", catalog.ALL, ids=lambda metric: metric.name)
def test_catalog(metric: Metric) -> None:
    """Each declaration is whole: a sentence for people, and a statsd name for each combination of labels.

    Some are for Prometheus alone: calls of drivers are too many for statsd, and Nodepool 11 has no such names.
    """
    assert metric.help.endswith(".")
    alone = {catalog.REQUEST_WAIT, catalog.BOOT, catalog.SCAN, catalog.RELOADS, catalog.SPANS, catalog.WEB_CLOSED}
    alone.add(catalog.INSTANCES_ENDED)
    if metric in alone or metric.name.startswith("nodepool_driver_call"):
        assert metric.statsd is None
        return
    names = statsd_names(metric.series(*(f"value{number}" for number in range(len(metric.labels)))))
    assert names
    assert all(name.startswith("nodepool.") for name in names)
    assert all(f"value{number}" in " ".join(names) for number in range(len(metric.labels)))


def test_catalog_names_are_unique() -> None:
    names = [metric.name for metric in catalog.ALL]
    assert len(names) == len(set(names))
    declared = {value for value in vars(catalog).values() if isinstance(value, Metric)}
    assert declared == set(catalog.ALL)
