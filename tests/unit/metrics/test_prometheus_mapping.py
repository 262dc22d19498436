# SPDX-License-Identifier: Apache-2.0
"""The mapping for statsd_exporter maps what we send to the Prometheus names that dashboards use (metrics 8)."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from nodepool.driver.openstack import service_client
from nodepool.driver.openstack.clouds import StatsdPlace
from nodepool.metrics import catalog, reports
from nodepool.metrics.statsd import statsd_names
from nodepool.model.component import PoolComponent

MAPPING = Path(__file__).parents[3] / "contrib" / "statsd_exporter" / "statsd-mapping.yaml"


@pytest.fixture(scope="module")
def mappings() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = yaml.safe_load(MAPPING.read_text(encoding="utf-8"))["mappings"]
    return loaded


def prometheus(mappings: list[dict[str, Any]], name: str, kind: str = "gauge") -> tuple[str, dict[str, str]] | None:
    """What statsd_exporter makes of a name: the first mapping that matches; None = dropped."""
    for mapping in mappings:
        match = re.search(mapping["match"], name)
        if match and mapping.get("match_metric_type", kind) == kind:
            if mapping.get("action") == "drop":
                return None
            labels = {key: match[int(value[1:])] if value else "" for key, value in mapping["labels"].items()}
            return mapping["name"], labels
    pytest.fail(f"{name} is neither mapped nor dropped")


@pytest.mark.parametrize(
    ("name", "metric", "labels"),
    [
        ("nodepool.nodes.in-use", "nodepool_nodes", {"state": "in-use"}),
        ("nodepool.label.debian-12.5.nodes.ready", "nodepool_nodes_by_label", {"label": "debian-12.5"}),
        ("nodepool.provider.eu.west.nodes.ready", "nodepool_nodes_by_provider", {"provider": "eu.west"}),
        ("nodepool.provider.p.max_servers", "nodepool_provider_max_servers", {"provider": "p"}),
        (
            "nodepool.launcher.nl01.example.com.provider.p.q.circuit_open",
            "nodepool_provider_circuit_open",
            {"launcher": "nl01.example.com", "provider": "p.q"},
        ),
        (
            "nodepool.launcher.nl01.example.com.provider.p.q.late_calls.labelReady",
            "nodepool_provider_late_calls",
            {"launcher": "nl01.example.com", "provider": "p.q", "hook": "labelReady"},
        ),
        ("nodepool.provider.p.q.circuit_opened", "nodepool_provider_circuit_opened", {"provider": "p.q"}),
        ("nodepool.dib_image_build.debian-12.5.status.rc", "nodepool_dib_image_build_result_code", {}),
        ("nodepool.dib_image_build.debian-12.5.qcow2.size", "nodepool_dib_image_build_size", {"ext": "qcow2"}),
        (
            "nodepool.dib_image_build.debian-12.5.status.last_build",
            "nodepool_dib_image_build_last_build",
            {"image": "debian-12.5"},
        ),
        (
            "nodepool.dib_image_build.debian-12.5.step.pre-install.duration",
            "nodepool_dib_image_build_step_duration",
            {"image": "debian-12.5", "step": "pre-install"},
        ),
        ("nodepool.builder.nb.a.image.d-12.5.build.seconds", "nodepool_builder_build_seconds", {"image": "d-12.5"}),
        (
            "nodepool.builder.nb.a.image.d.build.estimate",
            "nodepool_builder_build_estimate_seconds",
            {"builder": "nb.a"},
        ),
        ("nodepool.image_build_requests", "nodepool_image_build_requests", {}),
        (
            "nodepool.image.debian-12.5.image_build_requests",
            "nodepool_image_build_requests_by_image",
            {"image": "debian-12.5"},
        ),
        (
            "nodepool.builder.nb01.example.com.image.debian-12.5.build.state",
            "nodepool_builder_build_state",
            {"builder": "nb01.example.com", "image": "debian-12.5"},
        ),
        (
            "nodepool.builder.nb01.example.com.current_builds",
            "nodepool_builder_current_builds",
            {"builder": "nb01.example.com"},
        ),
        (
            "nodepool.builder.nb01.example.com.build_workers",
            "nodepool_builder_build_workers",
            {"builder": "nb01.example.com"},
        ),
        (
            "nodepool.builder.nb01.example.com.image.debian-12.5.provider.p.q.upload.state",
            "nodepool_builder_upload_state",
            {"builder": "nb01.example.com", "image": "debian-12.5", "provider": "p.q"},
        ),
        ("nodepool.builder.nb.image.i.provider.p.upload.progress", "nodepool_builder_upload_progress", {"image": "i"}),
        (
            "nodepool.builder.nb.image.i.provider.p.upload.bytes_per_second",
            "nodepool_builder_upload_bytes_per_second",
            {"provider": "p"},
        ),
        ("nodepool.builder.nb.example.current_uploads", "nodepool_builder_current_uploads", {"builder": "nb.example"}),
        ("nodepool.builder.nb.example.upload_workers", "nodepool_builder_upload_workers", {"builder": "nb.example"}),
        ("nodepool.provider.p.q.unknown_images", "nodepool_provider_unknown_images", {"provider": "p.q"}),
        ("nodepool.tenant_limits.acme.volume-gb", "nodepool_tenant_limit", {"limit": "volume-gb"}),
    ],
)
def test_gauges(mappings: list[dict[str, Any]], name: str, metric: str, labels: dict[str, str]) -> None:
    """Names with dots keep them as one label."""
    found = prometheus(mappings, name)
    assert found is not None
    assert found[0] == metric
    assert labels.items() <= found[1].items()


@pytest.mark.parametrize("result", ["ready", "error.quota"])
@pytest.mark.parametrize(("kind", "suffix"), [("counter", ""), ("observer", "_timer")])
def test_launches(mappings: list[dict[str, Any]], result: str, kind: str, suffix: str) -> None:
    """Each of the four keys of a launch, as counter and as timer."""
    found = [
        prometheus(mappings, key, kind)
        for key in statsd_names(catalog.LAUNCH.series(result, "p1", "az1", "zuul.example"))
    ]
    assert found == [
        (f"nodepool_launch{suffix}", {"result": result}),
        (f"nodepool_launch_by_provider{suffix}", {"provider": "p1", "result": result}),
        (f"nodepool_launch_by_provider_az{suffix}", {"provider": "p1", "az": "az1", "result": result}),
        (f"nodepool_launch_by_requestor{suffix}", {"requestor": "zuul_example", "result": result}),
    ]


@pytest.mark.parametrize(("kind", "suffix"), [("counter", ""), ("observer", "_timer")])
def test_calls_to_openstack(mappings: list[dict[str, Any]], kind: str, suffix: str) -> None:
    """Names of openstacksdk, and of Nodepool 11 with the provider; both have the same labels."""
    outcome = {"service": "compute", "method": "GET", "operation": "servers_detail", "outcome": "200"}
    name = "compute.GET.servers_detail.200"
    assert prometheus(mappings, f"openstack.api.{name}", kind) == (
        f"nodepool_task{suffix}",
        {"provider": "", **outcome},
    )
    found = prometheus(mappings, f"nodepool.task.eu.west.{name}", kind)
    assert found == (f"nodepool_task{suffix}", {"provider": "eu.west", **outcome})


def test_counted_calls_are_mapped(mappings: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """What we send of a call has a Prometheus name."""
    sent: list[tuple[str, str]] = []

    class Pipe:
        def __enter__(self) -> Pipe:
            return self

        def __exit__(self, *_: object) -> None: ...

        def incr(self, name: str) -> None:
            sent.append((name, "counter"))

        def timing(self, name: str, _milliseconds: int) -> None:
            sent.append((name, "observer"))

    client = SimpleNamespace(pipeline=Pipe, resolved=True)
    monkeypatch.setattr(service_client, "client_of", lambda host, port: client)
    metrics = service_client.StatsdCounts(StatsdPlace("localhost", 8125, "openstack.api"))
    metrics.count("compute", "GET", "/servers/detail?limit=1", "200", 0.1)
    assert [found[1]["outcome"] for name, kind in sent if (found := prometheus(mappings, name, kind))] == [
        "200",
        "200",
        "attempted",
    ]


def test_nothing_of_the_leader_is_dropped(mappings: list[dict[str, Any]]) -> None:
    """All gauges of nodes, requests and limits have a Prometheus name."""
    pool = PoolComponent("host", "1")
    pool.provider_name, pool.name, pool.supported_labels = "p1", "main", ["small"]
    sent = {**reports.node_gauges([], [pool]), **reports.request_gauges([], [pool])}
    sent |= reports.limit_gauges({"p1": [1]}, {"acme": {}})
    assert all(prometheus(mappings, name) for series in sent for name in statsd_names(series))


def test_strangers_are_dropped(mappings: list[dict[str, Any]]) -> None:
    """reference/metrics 8: names that are not matched are dropped."""
    assert prometheus(mappings, "some.other.program") is None
