# SPDX-License-Identifier: Apache-2.0
"""Pods in projects that are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudSetup
from nodepool.driver.openshiftpods.cloud import PodCloud
from nodepool.exceptions import NotFound
from tests.unit.driver.kubernetes.stand_in import StandIn


@pytest.fixture
def client() -> StandIn:
    return StandIn()


@pytest.fixture
def cloud(client: StandIn) -> Iterator[PodCloud]:
    made = PodCloud("os", client, ["a", "a-b"])
    yield made
    made.stop()


def test_project_of_a_pod(cloud: PodCloud, client: StandIn) -> None:
    """OS-7: a project's name may be the beginning of another's: the pod that is there says which one it is."""
    missing = CloudNotFound("no", 404)
    meta = {"name": "b-pod-7", "namespace": "a", "uid": "u", "labels": {"nodepool_provider_name": "os"}}
    client.answers["GET", "/api/v1/namespaces/a-b/pods/pod-7"] = missing
    client.answers["GET", "/api/v1/namespaces/a/pods/b-pod-7"] = {"metadata": meta}
    cloud.delete_instance("a-b-pod-7")
    method, path, body = client.calls[-1]
    assert (method, path) == ("DELETE", "/api/v1/namespaces/a/pods/b-pod-7")
    assert body["preconditions"] == {"uid": "u"}


def test_pod_of_somebody_else(cloud: PodCloud, client: StandIn) -> None:
    """OS-7: no project of the configuration, or no pod of ours: nothing is deleted."""
    client.answers["GET", "/api/v1/namespaces/a/pods/x-1"] = {
        "metadata": {"name": "x-1", "namespace": "a", "labels": {"nodepool_provider_name": "another"}}
    }
    for record_id in ("a-x-1", "c-x-1"):
        with pytest.raises(NotFound):
            cloud.delete_instance(record_id)
    assert not [method for method, *_ in client.calls if method == "DELETE"]


def test_missing_project(cloud: PodCloud, client: StandIn, caplog: pytest.LogCaptureFixture) -> None:
    """OS-6: a project that is missing or forbidden is told of once, and does not keep the others from being seen."""
    forbidden = CloudSetup("forbidden", 403)
    pod = {"metadata": {"name": "p-1", "namespace": "a", "uid": "u", "labels": {}}}
    client.lists = [forbidden, ([pod], "1"), forbidden, ([pod], "2")]
    for _ in range(2):
        assert [record.id for record in cloud.list_instances(None)] == ["a-p-1"]
    assert [record.message for record in caplog.records if "a-b" in record.message] == [
        "Provider os: pods of project a-b cannot be listed: forbidden"
    ]


def test_no_project_at_all(cloud: PodCloud, client: StandIn) -> None:
    """OS-6: when none can be listed, nobody knows what is there: that is an error."""
    client.lists = [CloudSetup("forbidden", 403), CloudSetup("forbidden", 403)]
    with pytest.raises(CloudSetup):
        cloud.list_instances(None)


def test_list_of_one_project(cloud: PodCloud) -> None:
    """OS-6: a list of one project says nothing of another's pods."""
    pods: dict[str, Any] = {
        project: {"metadata": {"name": "p-1", "namespace": project, "uid": project, "labels": {}}}
        for project in ("a", "a-b")
    }
    cloud.listed("a", [pods["a"]], 0.0)
    cloud.listed("a-b", [pods["a-b"]], 0.0)
    cloud.listed("a", [], 0.0)
    assert cloud.inventory.get("a-p-1") is None
    assert cloud.inventory.is_gone("a-p-1")
    assert cloud.inventory.get("a-b-p-1") is not None
