# SPDX-License-Identifier: Apache-2.0
"""Gauges of a snapshot: requests, limits, hosts, launchers, images."""

from __future__ import annotations

import math
from typing import Any

from nodepool.metrics import catalog, prometheus
from nodepool.metrics.registry import Metric
from nodepool.model import states
from nodepool.model.image import BuildView, ImageBuild, ImagesView, ImageUpload, ImageView, UploadView
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.status import (
    AbsentProvider,
    HostStatus,
    LabelStatus,
    LauncherStatus,
    LaunchesStatus,
    LimitStatus,
    ReloadStatus,
)
from nodepool.plan.observed import Observed
from nodepool.web.metrics import computed_gauges
from nodepool.web.snapshot import WebSnapshot
from tests.support.observed import NOW, component, known, node, request, seen, status


def gauges(metric: Metric, observed: Observed | None = None, **fields: Any) -> dict[tuple[str, ...], float]:
    """Labels -> value of one metric."""
    found = computed_gauges(WebSnapshot(0, seen() if observed is None else observed, **fields))
    return {series.values: value for series, value in found.items() if series.metric is metric}


def test_nodes() -> None:
    """WP-70: the names of the gauges that statsd gets."""
    nodes = known(node(1), node(2, state=states.IN_USE))
    observed = seen(request(7), nodes=nodes, registered=[component("cloud-1", "gpu")])
    assert gauges(catalog.NODES, observed)["in-use",] == 1
    assert gauges(catalog.NODES_BY_LABEL, observed)["gpu", "ready"] == 1
    assert gauges(catalog.NODES_BY_PROVIDER, observed)["cloud-1", "ready"] == 1
    assert gauges(catalog.ADDRESSABLE_REQUESTS, observed) == {("cloud-1", "main"): 1}


class TestRequests:
    """WP-73."""

    def test_states(self) -> None:
        observed = seen(request(1), request(2, state=states.PENDING))
        assert gauges(prometheus.REQUESTS, observed) == {
            ("requested",): 1,
            ("pending",): 1,
            ("fulfilled",): 0,
            ("failed",): 0,
        }

    def test_waiting(self) -> None:
        """By label and reason code: the one that `explain` tells."""
        other = request(3, "arm", "gpu")
        observed = seen(
            request(1), request(2), request(4, state=states.PENDING), other, registered=[component("c", "gpu")]
        )
        found = gauges(prometheus.WAITING, observed)
        assert {label: sum(n for (one, _), n in found.items() if one == label) for label, _ in found} == {
            "gpu": 3,
            "arm": 1,
        }
        assert found["arm", "pool.missing"] == 1

    def test_oldest(self) -> None:
        """A label that nobody asks for is 0, so that the series does not come and go."""
        young = request(2)
        young.created_time = NOW - 10
        observed = seen(request(1, state=states.PENDING), young, registered=[component("c", "gpu", "arm")])
        assert gauges(prometheus.OLDEST, observed) == {("gpu",): 412, ("arm",): 0}


class TestLimits:
    """WP-74."""

    LIMITS = (
        LimitStatus("pool", "instances", 20, 18),
        LimitStatus("pool", "cores", None, 30),
        LimitStatus("cloud", "cores", 80, 72, 8, asked_at=5.0),
        LimitStatus("tenant:acme", "cores", 40, 4),
    )

    def test_scopes(self) -> None:
        observed = seen(statuses=[status("p", limits=self.LIMITS)])
        assert gauges(prometheus.LIMIT, observed) == {
            ("pool", "p", "main", "", "instances"): 20,
            ("cloud", "p", "", "", "cores"): 80,
            ("tenant", "", "", "acme", "cores"): 40,
        }
        assert gauges(prometheus.LIMIT_USED, observed)["pool", "p", "main", "", "cores"] == 30
        assert gauges(prometheus.LIMIT_OTHERS, observed)["cloud", "p", "", "", "cores"] == 8

    def test_told_by_several_launchers(self) -> None:
        """The newest answer of the cloud counts, once for all pools of the provider."""
        newer = [LimitStatus("cloud", "cores", 90, 70, asked_at=6.0)]
        observed = seen(statuses=[status("p", limits=self.LIMITS), status("p", host="l2", limits=newer)])
        assert gauges(prometheus.LIMIT, observed)["cloud", "p", "", "", "cores"] == 90

    def test_released_names(self) -> None:
        statuses = [status("p", limits=self.LIMITS), status("q")]
        assert gauges(catalog.MAX_SERVERS, seen(statuses=statuses)) == {("p",): 20, ("q",): math.inf}
        launcher = LauncherStatus(host="l1", tenant_limits={"acme": {"cores": 40}})
        found = gauges(catalog.TENANT_LIMIT, launchers=[launcher])
        assert (found["acme", "cores"], found["acme", "ram"]) == (40, math.inf)


class TestPools:
    """WP-75."""

    def test_states(self) -> None:
        statuses = [
            status("p", state="unavailable", code="provider.unavailable", launches=LaunchesStatus(running=2)),
            status("p", host="l2", launches=LaunchesStatus(running=3)),
        ]
        observed = seen(statuses=statuses)
        assert gauges(prometheus.POOL_STATE, observed) == {
            ("p", "main", "unavailable", "provider.unavailable"): 1,
            ("p", "main", "running", ""): 1,
        }
        assert gauges(prometheus.POOL_LAUNCHES, observed) == {("p", "main"): 5}

    def test_labels(self) -> None:
        observed = seen(statuses=[status("p", labels={"gpu": LabelStatus("label.broken", "no flavor")})])
        assert gauges(prometheus.LABEL_BROKEN, observed) == {("p", "main", "gpu", "label.broken"): 1}

    def test_hosts(self) -> None:
        hosts = (
            HostStatus("a", True, pool="rack"),
            HostStatus("b", False, pool="rack"),
            HostStatus("c", None, pool="rack"),
            HostStatus("d", True, pool="rack", quarantine="fails"),
        )
        observed = seen(statuses=[status("lab", pool="rack", hosts=hosts)])
        assert gauges(prometheus.HOSTS, observed) == {
            ("lab", "rack", state): 1 for state in ("up", "down", "unknown", "quarantined")
        }
        up = gauges(prometheus.HOST_UP, observed)
        assert {host: value for (*_, host), value in up.items()} == {"a": 1, "b": 0, "d": 1}

    def test_maintenance(self) -> None:
        records = [Maintenance("pool", "p/main", Mode.PAUSE), Maintenance("label", "gpu", Mode.PAUSE, until=NOW)]
        assert gauges(prometheus.MAINTENANCE, seen(maintenance=records)) == {("pool", "p/main", "pause"): 1}


def test_launchers() -> None:
    """WP-75."""
    first = LauncherStatus(host="l1", version="12.0", config="9f3c", since=5.0, reload=ReloadStatus(7.0, False, "bad"))
    second = LauncherStatus(host="l2", version="12.0", config="9f3c", absent=[AbsentProvider("p2")])
    both = [first, second]
    assert set(gauges(prometheus.LAUNCHER_INFO, launchers=both)) == {
        ("l1", "12.0", "9f3c", "running"),
        ("l2", "12.0", "9f3c", "running"),
    }
    assert gauges(prometheus.LAUNCHER_START, launchers=both)["l1",] == 5.0
    assert gauges(prometheus.RELOAD_OK, launchers=both) == {("l1",): 0}
    assert gauges(prometheus.RELOAD_TIME, launchers=both) == {("l1",): 7.0}
    assert gauges(prometheus.ABSENT, launchers=both) == {("l2", "p2"): 1}


def test_images() -> None:
    """WP-76."""
    build, upload = ImageBuild("debian", "1"), ImageUpload("debian", "1", "p", "1")
    build.state, build.state_time = states.READY, 100.0
    upload.state, upload.state_time = states.READY, 200.0
    view = BuildView("1", build, uploads={"p": (UploadView("1", upload),)})
    images = ImagesView({"debian": ImageView("debian", builds={"1": view, "2": BuildView("2", None)})})
    assert gauges(prometheus.BUILDS, images=images)["debian", "ready"] == 1
    assert gauges(prometheus.BUILDS, images=images)["debian", "failed"] == 0
    assert gauges(prometheus.UPLOADS, images=images)["debian", "p", "ready"] == 1
    assert gauges(prometheus.BUILD_TIME, images=images) == {("debian",): 100.0}
    assert gauges(prometheus.UPLOAD_TIME, images=images) == {("debian", "p"): 200.0}
