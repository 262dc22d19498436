# SPDX-License-Identifier: Apache-2.0
"""What the registry holds as families for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse
from prometheus_client.registry import Collector

from nodepool.metrics import catalog, prometheus
from nodepool.metrics.prometheus import families, family_names
from nodepool.metrics.registry import Metric, MetricKind, Registry, Series, Value

REFERENCE = Path(__file__).parents[3] / "doc" / "source" / "reference" / "metrics.rst"


class Given(Collector):
    def __init__(self, values: Mapping[Series, Value]) -> None:
        self.values = values

    def collect(self) -> list[Family]:
        return list(families(self.values))


def exposition(values: Mapping[Series, Value]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Given(values))
    return registry


def samples(values: Mapping[Series, Value]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """As Prometheus reads them: name and labels -> value. No series may be there twice."""
    found = {}
    for family in parse(generate_latest(exposition(values)).decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def test_launches_have_the_released_names() -> None:
    """WP-70, reference/metrics 8: a number and a distribution under each of four names."""
    registry = Registry()
    registry.time(catalog.LAUNCH.series("ready", "p1", "az1", "zuul"), 30.0)
    registry.time(catalog.LAUNCH.series("ready", "p1", "", ""), 40.0)
    registry.time(catalog.LAUNCH.series("error.quota", "p2", "", ""), 5.0)
    found = samples(registry.snapshot())
    assert found["nodepool_launch", (("result", "ready"),)] == 2
    assert found["nodepool_launch", (("result", "error.quota"),)] == 1
    assert found["nodepool_launch_by_provider", (("provider", "p1"), ("result", "ready"))] == 2
    assert found["nodepool_launch_by_provider_az", (("az", "az1"), ("provider", "p1"), ("result", "ready"))] == 1
    assert found["nodepool_launch_by_requestor", (("requestor", "zuul"), ("result", "ready"))] == 1
    assert found["nodepool_launch_timer_sum", (("result", "ready"),)] == 70.0
    assert found["nodepool_launch_timer_bucket", (("le", "30.0"), ("result", "ready"))] == 1
    assert found["nodepool_launch_timer_bucket", (("le", "+Inf"), ("result", "ready"))] == 2
    assert not [
        labels for name, labels in found if name == "nodepool_launch_by_requestor" and ("requestor", "") in labels
    ]


def test_gauges_counters_timers() -> None:
    registry = Registry()
    registry.set(catalog.NODES.series("in-use"), 3)
    registry.count(catalog.LEAKED.series("p1", "ports"), 2)
    registry.time(catalog.BUILD_DURATION.series("debian"), 100.0)
    found = samples(registry.snapshot())
    assert found["nodepool_nodes", (("state", "in-use"),)] == 3
    assert found["nodepool_provider_leaked_total", (("provider", "p1"), ("resource", "ports"))] == 2
    assert found["nodepool_dib_image_build_duration_count", (("image", "debian"),)] == 1


@pytest.mark.parametrize("text", ['a"b\\c\nd', "\ud800", "ü", "x" * 1000])
def test_any_text_as_a_label(text: str) -> None:
    """WP-72: names come from other programs."""
    found = samples({catalog.NODES_BY_LABEL.series(text, "ready"): 1.0})
    (((_, labels), value),) = found.items()
    assert value == 1.0
    assert len(dict(labels)["label"]) <= 200


def test_texts_that_become_the_same() -> None:
    """WP-72: Prometheus refuses all metrics if a series is there twice."""
    found = samples({catalog.NODES_BY_LABEL.series("x" * 500 + end, "ready"): 1.0 for end in "ab"})
    assert len(found) == 1


def test_number_of_series_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """WP-72."""
    monkeypatch.setattr(prometheus, "MAX_SERIES", 10)
    found = samples({catalog.NODES_BY_LABEL.series(str(number), "ready"): 1.0 for number in range(20)})
    assert len(found) == 10


def test_counters_only_grow() -> None:
    """WP-71: whatever is counted beside them, and although gauges of groups go."""
    registry = Registry()
    before: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for number in range(50):
        registry.time(catalog.LAUNCH.series("ready", f"p{number % 7}", f"az{number % 3}", f"r{number}"), float(number))
        registry.count(catalog.LEAKED.series("p1", "ports"))
        registry.replace("group", {catalog.NODES.series(str(number)): 1.0})
        registry.forget("group")
        after = samples(registry.snapshot())
        assert all(after[key] >= value for key, value in before.items())
        before = after


@pytest.mark.parametrize("metric", [*catalog.ALL, *prometheus.ALL], ids=lambda metric: str(metric.name))
def test_each_metric_can_be_told(metric: Metric) -> None:
    """Under the names that queries use, in both formats."""
    registry = Registry()
    series = metric.series(*("v" for _ in metric.labels))
    if metric.kind is MetricKind.TIMER:
        registry.time(series, 1.0)
    elif metric.kind is MetricKind.COUNTER:
        registry.count(series)
    else:
        registry.set(series, 1.0)
    values = registry.snapshot()
    assert {name for name, _ in samples(values)} == set(family_names(metric))
    text = generate_openmetrics(exposition(values)).decode()  # type: ignore[no-untyped-call]
    parsed = parse_openmetrics(text)  # type: ignore[no-untyped-call]
    assert {sample.name for family in parsed for sample in family.samples} == set(family_names(metric))


def test_names_are_unique() -> None:
    names = [name for metric in (*catalog.ALL, *prometheus.ALL) for name in family_names(metric)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("metric", [*catalog.ALL, *prometheus.ALL], ids=lambda metric: str(metric.name))
def test_documented(metric: Metric) -> None:
    """reference/metrics 8 and 9 have each name; of those that statsd does not get also the labels."""
    text = REFERENCE.read_text(encoding="utf-8")
    if metric.statsd is not None:
        # Its names at statsd are in the sections before; two have another name for Prometheus.
        other = {catalog.LEAKED: "nodepool_leaked", catalog.ZK_QUEUE: "zk.client.connection_queue"}
        assert other.get(metric, metric.name) in text
        return
    name = metric.name + ("_total" if metric.kind is MetricKind.COUNTER else "")
    labels = ", ".join(f"``{label}``" for label in metric.labels) or "none"
    assert f"   * - ``{name}``\n     - {labels}\n" in text
