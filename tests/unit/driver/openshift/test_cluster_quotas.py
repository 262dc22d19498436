# SPDX-License-Identifier: Apache-2.0
"""Quotas that hold for several projects."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudSetup
from nodepool.driver.kubernetes import objects
from nodepool.driver.openshift import OpenShiftDriver
from nodepool.driver.openshift.adapter import DESCRIPTION, OpenShiftAdapter, left_for_us, of_all, together
from nodepool.driver.openshiftpods import OpenShiftPodsDriver
from nodepool.driver.openshiftpods.adapter import OpenShiftPodsAdapter
from nodepool.model.quota import QuotaInformation
from tests.support.provider_sections import load_section
from tests.unit.driver.kubernetes.stand_in import StandIn

POD = {"name": "pod", "type": "pod", "image": "debian", "cpu": 2, "memory": 1024}


def quota(hard: dict[str, str], used: dict[str, str], by_project: dict[str, dict[str, str]] | None = None) -> Any:
    """As a project shows it."""
    parts = [{"namespace": name, "status": {"hard": hard, "used": found}} for name, found in (by_project or {}).items()]
    status = {"total": {"hard": hard, "used": used}, "namespaces": parts}
    return {"metadata": {"name": "team"}, "spec": {"quota": {"hard": hard}}, "status": status}


def finite(found: QuotaInformation) -> dict[str, float]:
    return found.get_resources()


def test_what_others_use() -> None:
    """KU-13: the limit without what others use, in our projects too, if it is more than Nodepool counts."""
    found = quota(
        {"requests.cpu": "10", "pods": "20"},
        {"requests.cpu": "7", "pods": "9"},
        {"main-1": {"requests.cpu": "3", "pods": "2"}, "theirs": {"requests.cpu": "4", "pods": "7"}},
    )
    left = left_for_us(found, {"main-1": {"cores": 2, "instances": 1}})
    assert left == {"cores": 10 - 5, "instances": 20 - 8}


def test_least_of_all() -> None:
    """KU-13: each quota holds by itself; one with scopes may not concern our pods."""
    scoped = quota({"pods": "1"}, {})
    scoped["spec"]["quota"]["scopes"] = ["BestEffort"]
    found = of_all([quota({"pods": "9"}, {}), quota({"pods": "5", "cpu": "3"}, {}), scoped], {})
    assert finite(found) == {"instances": 5, "cores": 3}


def test_quota_without_a_status() -> None:
    """KU-13: a controller has not counted yet."""
    found = {"metadata": {"name": "team"}, "spec": {"quota": {"hard": {"pods": "4"}}}}
    assert finite(of_all([found], {})) == {"instances": 4}


def test_quota_of_some_of_our_projects() -> None:
    """KU-13: it counts once, however many projects show it; the others have what their own quotas leave."""
    own = {name: objects.made_of({"instances": 5.0}) for name in ("a", "b", "c")}
    shared = quota({"pods": "6"}, {"pods": "0"})
    assert finite(together(own, {"a": [shared], "b": [shared], "c": []}, {})) == {"instances": 11}
    own["c"] = objects.made_of({})
    assert finite(together(own, {"a": [shared], "b": [shared], "c": []}, {})) == {}
    assert finite(together(own, {name: [shared] for name in own}, {})) == {"instances": 6}


@pytest.fixture
def client() -> StandIn:
    return StandIn()


def project(name: str) -> dict[str, Any]:
    node = name.partition("-")[2]
    text = f"nodepool_node_id={node} nodepool_node_label=pod nodepool_pool_name=main nodepool_provider_name=os"
    return {"metadata": {"name": name, "uid": name, "annotations": {DESCRIPTION: text}}}


def adapter_of(client: StandIn, *labels: dict[str, Any]) -> OpenShiftAdapter:
    section = {"name": "os", "driver": "openshift", "context": "c", "pools": [{"name": "main", "labels": list(labels)}]}
    return OpenShiftAdapter(load_section(OpenShiftDriver(), section), client)


def test_limits_of_projects(client: StandIn) -> None:
    """KU-13, OS-5: read in a project of ours; one that is going is left out, one that is gone tells nothing."""
    adapter = adapter_of(client, POD)
    assert finite(adapter.getQuotaLimits()) == {}, "there is no project to ask in"
    client.lists = [([project("main-1"), project("main-2")], "1")]
    adapter.cloud.inventory.refresh(complete=True)
    used = {"requests.cpu": "6"}
    found = quota({"requests.cpu": "10", "pods": "8"}, used, {"main-1": {"requests.cpu": "2"}})
    client.lists = [CloudSetup("gone", 403), ([found], "1")]
    assert finite(adapter.getQuotaLimits()) == {"cores": 6, "instances": 8}
    client.lists = [CloudNotFound("no such API", 404), CloudNotFound("no such API", 404)]
    assert finite(adapter.getQuotaLimits()) == {}
    adapter.stop()


def test_number_of_pods_in_projects_of_jobs(client: StandIn) -> None:
    """KU-13: a job makes as many as it wants in its project: that is no number of nodes."""
    adapter = adapter_of(client, POD, {"name": "space", "type": "project"})
    client.lists = [([project("main-1")], "1")]
    adapter.cloud.inventory.refresh(complete=True)
    client.lists = [([quota({"requests.cpu": "10", "pods": "8"}, {})], "1")]
    assert finite(adapter.getQuotaLimits()) == {"cores": 10}
    adapter.stop()


def test_limits_of_pods(client: StandIn) -> None:
    """KU-13, OS-6: the project's own quota, and those of several projects, less what others use."""
    label = {"name": "pod", "image": "debian"}
    section = {
        "name": "os",
        "driver": "openshiftpods",
        "context": "c",
        "pools": [{"name": "shared", "labels": [label]}],
    }
    adapter = OpenShiftPodsAdapter(load_section(OpenShiftPodsDriver(), section), client)
    own = {"spec": {"hard": {"pods": "9"}}, "status": {"hard": {"pods": "9"}, "used": {"pods": "2"}}}
    spread = quota({"pods": "8"}, {"pods": "5"}, {"shared": {"pods": "2"}, "theirs": {"pods": "3"}})
    pod = {"metadata": {"name": "p"}, "spec": {"containers": []}, "status": {"phase": "Running"}}
    # Quotas, quotas of several projects, our pods.
    client.lists = [([own], "1"), ([spread], "1"), ([pod], "1")]
    assert finite(adapter.getQuotaLimits()) == {"instances": 4}
    # Nothing is known, nothing is asked further.
    client.lists = [CloudSetup("forbidden", 403), CloudNotFound("no such API", 404)]
    assert finite(adapter.getQuotaLimits()) == {}
    adapter.stop()
