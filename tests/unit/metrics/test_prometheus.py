# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus: their names, the files of etc/ that ask for them, and the mapping of statsd_exporter."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse
from prometheus_client.registry import Collector

from nodepool.metrics.catalog import ALL, BUILD_DURATION, LAUNCH, LEAKED, NODES, NODES_BY_LABEL
from nodepool.metrics.registry import MAX_SERIES, Metric, Registry, Series, Value
from nodepool.web.served import families
from tests.support.tables import rows, table

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "etc" / "prometheus-alerts.yaml"
ALERT_TESTS = Path(__file__).parent / "prometheus-alerts-test.yaml"
Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Given(Collector):
    def __init__(self, values: Mapping[Series, Value]) -> None:
        self.values = values

    def collect(self) -> list[Family]:
        return list(families(self.values))


def exposition(values: Mapping[Series, Value]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Given(values))
    return registry


def samples(values: Mapping[Series, Value]) -> Found:
    """As Prometheus reads them: name and labels -> value. No series may be there twice."""
    found: Found = {}
    for family in parse(generate_latest(exposition(values)).decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def test_values() -> None:
    """WP-70, reference/metrics 8: a launch has a number and a distribution under each of four released names."""
    registry = Registry()
    registry.time(LAUNCH.series("ready", "p1", "az1", "zuul"), 30.0)
    registry.time(LAUNCH.series("ready", "p1", "", ""), 40.0)
    registry.time(LAUNCH.series("error.quota", "p2", "", ""), 5.0)
    registry.set(NODES.series("in-use"), 3)
    registry.count(LEAKED.series("p1", "ports"), 2)
    registry.time(BUILD_DURATION.series("debian"), 100.0)
    found = {
        " ".join((name, *(value for _, value in labels))): value
        for (name, labels), value in samples(registry.snapshot()).items()
    }
    assert {**found, **table(__file__, "values")} == found
    assert len([name for name in found if name.startswith("nodepool_launch_by_requestor ")]) == 1


def one_of_each(*metrics: Metric) -> dict[Series, Value]:
    registry = Registry()
    puts: dict[str, Callable[[Series, float], None]] = {"timer": registry.time, "counter": registry.count}
    for metric in metrics:
        puts.get(metric.kind.value, registry.set)(metric.series(*("v" for _ in metric.labels)), 1.0)
    return registry.snapshot()


def test_each_metric() -> None:
    """WP-70: the same names in both formats; no two metrics share one."""
    text = generate_openmetrics(exposition(one_of_each(*ALL))).decode()  # type: ignore[no-untyped-call]
    parsed = parse_openmetrics(text)  # type: ignore[no-untyped-call]
    names = {name for name, _ in samples(one_of_each(*ALL))}
    assert {sample.name for family in parsed for sample in family.samples} == names
    assert len(names) == sum(len({name for name, _ in samples(one_of_each(metric))}) for metric in ALL)


# -- alert rules and dashboard

#: What Prometheus adds to each series.
ADDED = {"job", "instance"}
#: Of prometheus_client and of Prometheus itself.
FOREIGN = dict.fromkeys(("up", "process_cpu_seconds_total", "process_resident_memory_bytes"), ADDED)


@functools.cache
def exported() -> dict[str, set[str]]:
    """Name of each sample -> its labels."""
    found: dict[str, set[str]] = {}
    for name, labels in samples(one_of_each(*ALL)):
        found.setdefault(name, set(ADDED)).update(label for label, _ in labels)
    return found


def alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "etc" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return loaded


def targets() -> Iterator[tuple[str, str]]:
    """Query and legend."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]


@pytest.mark.parametrize("query", [*(rule["expr"] for rule in alert_rules()), *(query for query, _ in targets())])
def test_query(query: str) -> None:
    """WP-78: all metrics, and all labels by which they are chosen and grouped, are exported."""
    known = exported() | FOREIGN
    selectors = re.findall(r"\b((?:nodepool|process)_\w+|up)\b({[^}]*})?", query)
    assert selectors
    for name, choice in selectors:
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)", choice)) <= known[name]
    for group in re.findall(r"\bby \(([^)]*)\)", query):
        assert {label.strip() for label in group.split(",")} <= set().union(*(known[name] for name, _ in selectors))


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")
def test_promtool(tmp_path: Path) -> None:
    """WP-78: Prometheus itself can use the rules and read the queries, and alerts do what their tests say."""
    read = [re.sub(r"\$[a-z]+", ".*", query.replace("$__rate_interval", "5m")) for query, _ in targets()]
    rules = [{"record": f"query_{number}", "expr": expr} for number, expr in enumerate(read)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    for what, file in (("check", ALERTS), ("test", ALERT_TESTS), ("check", path)):
        command = ["promtool", what, "rules", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


# -- the mapping of statsd_exporter (metrics 8)


@pytest.fixture(scope="module")
def mappings() -> list[dict[str, Any]]:
    path = ROOT / "contrib" / "statsd_exporter" / "statsd-mapping.yaml"
    loaded: list[dict[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))["mappings"]
    return loaded


def mapped(mappings: list[dict[str, Any]], name: str, kind: str = "gauge") -> tuple[str, dict[str, str]] | None:
    """What statsd_exporter makes of a name: the first mapping that matches; None = dropped."""
    for mapping in mappings:
        match = re.search(mapping["match"], name)
        if match and mapping.get("match_metric_type", kind) == kind:
            if mapping.get("action") == "drop":
                return None
            labels = {key: match[int(value[1:])] if value else "" for key, value in mapping["labels"].items()}
            return mapping["name"], labels
    pytest.fail(f"{name} is neither mapped nor dropped")


@rows(__file__, "test_mapped_gauges")
def test_mapped_gauges(mappings: list[dict[str, Any]], name: str, metric: str, labels: dict[str, str]) -> None:
    """WP-78, reference/metrics 8: names with dots keep them as one label; others are dropped."""
    found = mapped(mappings, f"nodepool.{name}")
    assert found is not None
    assert (found[0], {**found[1], **labels}) == (f"nodepool_{metric}", found[1])
    assert mapped(mappings, "some.other.program") is None


@pytest.mark.parametrize(("kind", "suffix"), [("counter", ""), ("observer", "_timer")])
def test_mapped_counters_and_timers(mappings: list[dict[str, Any]], kind: str, suffix: str) -> None:
    """WP-78: the four keys of a launch; calls to OpenStack with names of openstacksdk, and of Nodepool 11."""
    for result in ("ready", "error.quota"):
        keys = LAUNCH.series(result, "p1", "az1", "zuul.example").statsd_names()
        for key, (name, labels) in zip(keys, table(__file__, "launch"), strict=True):
            assert mapped(mappings, key, kind) == (f"nodepool_launch{name}{suffix}", {**labels, "result": result})
    outcome = {"service": "compute", "method": "GET", "operation": "servers_detail", "outcome": "200"}
    for prefix, provider in (("openstack.api", ""), ("nodepool.task.eu.west", "eu.west")):
        found = mapped(mappings, f"{prefix}.compute.GET.servers_detail.200", kind)
        assert found == (f"nodepool_task{suffix}", {"provider": provider, **outcome})


def test_any_text_as_a_label() -> None:
    """WP-72: names come from other programs; Prometheus refuses all if a series is there twice; there is a bound."""
    for text in ('a"b\\c\nd', "\ud800", "ü", "x" * 1000):
        (((_, labels), value),) = samples({NODES_BY_LABEL.series(text, "ready"): 1.0}).items()
        assert (value, len(dict(labels)["label"]) <= 200) == (1.0, True)
    assert len(samples({NODES_BY_LABEL.series("x" * 500 + end, "ready"): 1.0 for end in "ab"})) == 1
    many: dict[Series, Value] = {NODES_BY_LABEL.series(str(n), "ready"): 1.0 for n in range(MAX_SERIES + 10)}
    assert sum(len(family.samples) for family in families(many)) == MAX_SERIES


def test_dashboard() -> None:
    """WP-78: legends name labels that the query leaves; variables are declared; each panel has a place of its own."""
    for query, legend in targets():
        groups = re.findall(r"^[^(]*\bby \(([^)]*)\)|\bby \(([^)]*)\)", query)
        left = {label.strip() for pair in groups for group in pair for label in group.split(",") if group}
        assert set(re.findall(r"{{(\w+)}}", legend)) <= (left or ADDED), query
    found = dashboard()
    used = set(re.findall(r"\$([a-z_]+)", json.dumps(found["panels"]).replace("$__rate_interval", "")))
    assert used <= {variable["name"] for variable in found["templating"]["list"]} | {"datasource"}
    for variable in found["templating"]["list"]:
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", str(variable.get("definition", "")))
        assert variable["type"] != "query" or (match is not None and match[2] in exported()[match[1]])
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in found["panels"]}
    assert len(places) == len({panel["id"] for panel in found["panels"]}) == len(found["panels"])
