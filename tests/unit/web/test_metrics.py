# SPDX-License-Identifier: Apache-2.0
"""``/metrics``: both formats, what the process itself is like, and errors."""

from __future__ import annotations

import dataclasses

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse
from starlette.applications import Starlette
from starlette.testclient import TestClient

from nodepool.metrics import catalog
from nodepool.metrics.registry import Registry
from nodepool.web import metrics
from nodepool.web.snapshot import WebSnapshot
from tests.support.observed import component, request, seen
from tests.support.web_site import WebSite


def client(site: WebSite, registry: Registry) -> TestClient:
    """Of an application with these metrics alone."""
    return TestClient(Starlette(routes=metrics.routes(site.site, registry)))


def values(text: str) -> dict[str, float]:
    """Samples without labels, and with labels the sums."""
    found: dict[str, float] = {}
    for family in parse(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


@pytest.fixture
def site() -> WebSite:
    return WebSite(WebSnapshot(0, seen(request(1), registered=[component("cloud-1", "gpu")])))


def test_text_format(site: WebSite) -> None:
    """WP-70."""
    answer = site.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert answer.headers["cache-control"] == "no-store"
    found = values(answer.text)
    assert found["nodepool_requests"] == 1
    assert found["nodepool_zookeeper_connected"] == 1
    assert found["nodepool_build_info"] == 1
    assert found["nodepool_threads"] >= 1
    assert found["process_cpu_seconds_total"] > 0


@pytest.mark.parametrize("version", ["", ";version=1.0.0", ";version=x", ";version=1.0.0;q=0.5,text/plain;version=y"])
def test_openmetrics(site: WebSite, version: str) -> None:
    """WP-70; whatever a client writes about versions."""
    answer = site.client.get("/metrics", headers={"accept": f"application/openmetrics-text{version}"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    parsed = parse_openmetrics(answer.text)  # type: ignore[no-untyped-call]
    assert "nodepool_requests" in {family.name for family in parsed}


@pytest.mark.parametrize("accept", ["text/plain;version=q", "*/*", "", "application/json", "text/html"])
def test_other_formats(site: WebSite, accept: str) -> None:
    answer = site.client.get("/metrics", headers={"accept": accept})
    assert answer.headers["content-type"].startswith("text/plain")


def test_computed_anew(site: WebSite) -> None:
    """WP-71: gauges that the registry has for statsd are not there twice, nor old."""
    registry = Registry()
    registry.replace("system", {catalog.NODES.series("ready"): 99.0, catalog.NODES.series("stale"): 99.0})
    registry.count(catalog.LEAKED.series("p1", "ports"))
    found = values(client(site, registry).get("/metrics").text)
    assert found["nodepool_nodes"] == 0
    assert found["nodepool_provider_leaked_total"] == 1


def test_internals(site: WebSite) -> None:
    """What the daemon knows of its inside."""
    inside = dataclasses.replace(site.site, internals=lambda: {catalog.ZK_QUEUE.series("l1", "q"): 3.0})
    app = Starlette(routes=metrics.routes(inside, Registry()))
    assert values(TestClient(app).get("/metrics").text)["nodepool_launcher_zk"] == 3


def test_error(site: WebSite, caplog: pytest.LogCaptureFixture) -> None:
    """WP-71: an error in one part is logged and hides no other."""

    def broken(lifetime: float = 0.0) -> WebSnapshot:
        raise ValueError("broken snapshot")

    site.snapshots.latest = broken  # type: ignore[method-assign]
    registry = Registry()
    registry.count(catalog.LEAKED.series("p1", "ports"))
    found = values(client(site, registry).get("/metrics").text)
    assert (found["nodepool_provider_leaked_total"], found["nodepool_build_info"]) == (1, 1)
    assert "broken snapshot" in caplog.text


def test_threads() -> None:
    """By kind: names of providers and numbers would be series without end."""
    names = ["PoolWorker.a-main", "PoolWorker.b-main", "NodeLauncher-0000000001", "42"]
    found = {series.values: value for series, value in metrics.thread_gauges(names).items()}
    assert found == {("PoolWorker",): 2, ("NodeLauncher",): 1, ("other",): 1}


def test_builder(site: WebSite) -> None:
    """WP-76: without caches; what it counts of builds and uploads."""
    inside = {catalog.ZK_QUEUE.series("b1", "q"): 3.0}
    app = Starlette(routes=metrics.builder_routes(site.daemon, "1.2.3", lambda: inside))
    text = TestClient(app).get("/metrics").text
    found = values(text)
    assert found["nodepool_build_info"] == 1
    assert "nodepool_requests" not in found
    # The registry is that of the process: another test may have left queues of its own there.
    queues = [sample for family in parse(text) for sample in family.samples if sample.name == "nodepool_launcher_zk"]
    assert [sample.value for sample in queues if "b1" in sample.labels.values()] == [3]
