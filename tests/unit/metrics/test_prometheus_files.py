# SPDX-License-Identifier: Apache-2.0
"""Alert rules and dashboard of etc/ ask for metrics that there are; alerts fire when they should, and not else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodepool.metrics import catalog, prometheus
from nodepool.metrics.prometheus import VIEWS, family_names
from nodepool.metrics.registry import MetricKind

ETC = Path(__file__).parents[3] / "etc"
ALERTS = ETC / "prometheus-alerts.yaml"
ALERT_TESTS = Path(__file__).parent / "prometheus-alerts-test.yaml"
PROMTOOL_SECONDS = 120
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")
#: Of prometheus_client and of Prometheus itself.
FOREIGN = {
    "up": {"job", "instance"},
    "process_cpu_seconds_total": {"job", "instance"},
    "process_resident_memory_bytes": {"job", "instance"},
}
#: What Prometheus adds to each series.
ADDED = {"job", "instance"}


def exported() -> dict[str, set[str]]:
    """Name of each sample -> its labels."""
    found: dict[str, set[str]] = {}
    for metric in (*catalog.ALL, *prometheus.ALL):
        for name in family_names(metric):
            views = [view for view in VIEWS.get(metric, ()) if name.removesuffix("_bucket").startswith(view.name)]
            best = max(views, key=lambda view: len(view.name), default=None)
            labels = set(metric.labels if best is None else best.labels)
            buckets = {"le"} if metric.kind is MetricKind.TIMER and name.endswith("_bucket") else set()
            found[name] = labels | buckets | ADDED
    return found


def alert_rules() -> list[dict[str, Any]]:
    loaded = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ETC / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return loaded


def queries() -> Iterator[Any]:
    """Each query of the two files, with what it is for."""
    for rule in alert_rules():
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")


@pytest.mark.parametrize("query", list(queries()))
def test_query(query: str) -> None:
    """WP-78: all metrics, and all labels by which they are chosen and grouped, are exported."""
    known = exported() | FOREIGN
    selectors = re.findall(r"\b((?:nodepool|process)_\w+|up)\b({[^}]*})?", query)
    assert selectors
    for name, choice in selectors:
        assert name in known
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)", choice)) <= known[name]
    for group in re.findall(r"\bby \(([^)]*)\)", query):
        assert {label.strip() for label in group.split(",")} <= set().union(*(known[name] for name, _ in selectors))


def test_legends() -> None:
    """A legend names only labels that the query leaves."""
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            groups = re.findall(r"^[^(]*\bby \(([^)]*)\)|\bby \(([^)]*)\)", target["expr"])
            left = {label.strip() for pair in groups for group in pair for label in group.split(",") if group}
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert shown <= (left or ADDED), panel["title"]


def test_variables() -> None:
    """Each one that a query has is declared, and its values come from a metric."""
    found = dashboard()
    declared = {variable["name"] for variable in found["templating"]["list"]}
    used = set(re.findall(r"\$([a-z_]+)", json.dumps(found["panels"]).replace("$__rate_interval", "")))
    assert used <= declared | {"datasource"}
    for variable in found["templating"]["list"]:
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", str(variable.get("definition", "")))
        if variable["type"] == "query":
            assert match is not None
            assert match[2] in exported()[match[1]]


def test_panels_have_places() -> None:
    panels = dashboard()["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len({panel["id"] for panel in panels}) == len(panels)


def test_each_alert_is_tested() -> None:
    """WP-78: that it fires, and that it does not."""
    loaded = yaml.safe_load(ALERT_TESTS.read_text(encoding="utf-8"))
    tests = [test for part in loaded["tests"] for test in part["alert_rule_test"]]
    names = {rule["alert"] for rule in alert_rules()}
    assert {test["alertname"] for test in tests if test["exp_alerts"]} == names
    assert {test["alertname"] for test in tests if not test["exp_alerts"]} == names


def promtool(*arguments: str) -> None:
    ended = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=PROMTOOL_SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@needs_promtool
@pytest.mark.parametrize("arguments", [("check", "rules", str(ALERTS)), ("test", "rules", str(ALERT_TESTS))])
def test_alerts(arguments: tuple[str, ...]) -> None:
    """WP-78: Prometheus itself can use the rules, and they do what their tests say."""
    promtool(*arguments)


@needs_promtool
def test_dashboard(tmp_path: Path) -> None:
    """WP-78: Prometheus can read the queries."""
    exprs = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    read = [re.sub(r"\$[a-z]+", ".*", expr.replace("$__rate_interval", "5m")) for expr in exprs]
    rules = [{"record": f"query_{number}", "expr": expr} for number, expr in enumerate(read)]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    promtool("check", "rules", str(path))
