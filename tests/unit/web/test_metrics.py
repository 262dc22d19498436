# SPDX-License-Identifier: Apache-2.0
"""``/metrics``, and the gauges of a snapshot."""

from __future__ import annotations

import re
from typing import cast

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from starlette.testclient import TestClient

from nodepool.metrics.catalog import LEAKED, NODES
from nodepool.metrics.registry import Registry
from nodepool.runtime.daemon import ConnectedDaemon
from nodepool.web.served import metrics_route
from nodepool.web.snapshot import WebSnapshot
from tests.support.observed import component, request, seen
from tests.support.tables import rows, table
from tests.support.web_records import full
from tests.support.web_site import WebSite


def exposition() -> list[str]:
    """What the snapshot alone causes, without states in which nothing is."""
    site = WebSite(full())
    daemon = cast("ConnectedDaemon", site.daemon)
    app = Starlette(routes=[metrics_route(daemon, "1.2.3", None, site.snapshots, Registry())])
    text = TestClient(app).get("/metrics").text
    lines = re.findall(r"^nodepool_(?!build_info|threads|zookeeper|web)(\w+\{.*)$", text, re.MULTILINE)
    return [line for line in lines if not re.match(r"(nodes|image_|limit_|pool_).* 0\.0$", line)]


def test_gauges() -> None:
    """WP-70, WP-73, WP-74, WP-75, WP-76: the newest answer of a cloud counts, once for all pools of the provider."""
    assert exposition() == table(__file__, "exposition")


@pytest.fixture
def site() -> WebSite:
    return WebSite(WebSnapshot(0, seen(request(1), registered=[component("cloud-1", "gpu")])))


def values(found: BaseRoute) -> dict[str, float]:
    """What is served: samples without labels, and with labels the sums."""
    return sums(TestClient(Starlette(routes=[found])).get("/metrics").text)


def sums(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in parse(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


OPEN, PLAIN = "application/openmetrics-text; version=1.0.0", "text/plain; version=0.0.4"


@rows(__file__, "test_formats")
def test_formats(site: WebSite, accept: str, kind: str) -> None:
    """WP-70: whatever a client writes about versions."""
    answer = site.client.get("/metrics", headers={"accept": accept})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    assert answer.headers["content-type"].startswith(kind)
    if kind == OPEN:
        assert "nodepool_requests" in {one.name for one in parse_openmetrics(answer.text)}  # type: ignore[no-untyped-call]
    else:
        found = sums(answer.text)
        names = ("nodepool_requests", "nodepool_zookeeper_connected", "nodepool_build_info")
        assert [found[name] for name in names] == [1, 1, 1]
        assert found["nodepool_threads"] >= 1
        assert found["process_cpu_seconds_total"] > 0


def test_parts_of_metrics(site: WebSite, caplog: pytest.LogCaptureFixture) -> None:
    """WP-71: gauges of the registry are computed anew; an error in one part is logged and hides no other."""
    registry = Registry()
    registry.replace("system", {NODES.series("ready"): 99.0, NODES.series("stale"): 99.0})
    registry.count(LEAKED.series("p1", "ports"))
    daemon = cast("ConnectedDaemon", site.daemon)
    found = values(metrics_route(daemon, "1.2.3", None, site.snapshots, registry))
    assert [found[name] for name in ("nodepool_nodes", "nodepool_provider_leaked_total")] == [0, 1]

    def broken(lifetime: float = 0.0) -> WebSnapshot:
        raise ValueError("broken snapshot")

    site.snapshots.latest = broken  # type: ignore[method-assign]
    found = values(metrics_route(daemon, "1.2.3", None, site.snapshots, registry))
    assert (found["nodepool_provider_leaked_total"], found["nodepool_build_info"]) == (1, 1)
    assert "broken snapshot" in caplog.text
