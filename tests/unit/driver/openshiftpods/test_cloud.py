# SPDX-License-Identifier: Apache-2.0
"""Pods in projects that are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudSetup
from nodepool.driver.openshiftpods.adapter import PodCloud
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


def test_pod_that_never_will_run(cloud: PodCloud) -> None:
    """KU-2: a launch that looks late finds why."""
    for reason, message in (("ErrImagePull", "not found"), ("ImagePullBackOff", "back-off")):
        states = [{"name": "c", "state": {"waiting": {"reason": reason, "message": message}}}]
        meta = {"name": "p-1", "namespace": "a", "uid": "u", "labels": {}}
        cloud.changed("a", {"metadata": meta, "status": {"containerStatuses": states}}, gone=False)
    record = cloud.inventory.get("a-p-1")
    assert record is not None
    assert record.pod is not None
    assert record.pod.verdict.fatal
    assert record.pod.verdict.problem == "container c: ErrImagePull: not found"


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


def pod_of(project: str, uid: str = "u") -> dict[str, Any]:
    labels = {"nodepool_provider_name": "os", "nodepool_node_id": "1"}
    return {"metadata": {"name": "p-1", "namespace": project, "uid": uid, "labels": labels}}


def test_list_of_one_project(cloud: PodCloud) -> None:
    """OS-6: a list of one project says nothing of another's pods."""
    cloud.listed("a", [pod_of("a")], monotonic())
    cloud.listed("a-b", [pod_of("a-b")], monotonic())
    cloud.listed("a", [], monotonic())
    assert cloud.inventory.get("a-p-1") is None
    assert cloud.inventory.is_gone("a-p-1")
    assert cloud.inventory.get("a-b-p-1") is not None


def test_list_that_is_older_than_what_is_known(cloud: PodCloud, client: StandIn) -> None:
    """OS-6: a pod that was made after the list of a watch began is not gone because that list lacks it."""
    older = monotonic()
    client.lists = [([], "1"), ([pod_of("a")], "1")]
    cloud.inventory.refresh(complete=True)
    cloud.listed("a", [], older)
    assert cloud.inventory.get("a-p-1") is not None
    assert not cloud.inventory.is_gone("a-p-1")


def test_end_of_the_pod_before(cloud: PodCloud) -> None:
    """OS-6: the next attempt has the same name; that a list lacks the last one's pod is not its end."""
    cloud.listed("a", [pod_of("a", "old")], monotonic())
    cloud.awaited("a-p-1", None)
    cloud.made("a-p-1", "new")
    cloud.listed("a", [], monotonic())
    assert cloud.inventory.get("a-p-1") is None
    assert not cloud.inventory.is_gone("a-p-1")


def test_end_that_is_told_after_a_newer_list(cloud: PodCloud, client: StandIn) -> None:
    """OS-6, KU-10: the end of a pod is not the end of the next attempt's, which a list has shown under its name."""
    cloud.changed("a", pod_of("a", "old"), gone=False)
    client.lists = [([pod_of("a", "new")], "2"), ([], "2")]
    cloud.inventory.refresh(complete=True)
    cloud.changed("a", pod_of("a", "old"), gone=True)
    assert not cloud.inventory.is_gone("a-p-1")
    (record,) = cloud.inventory.known()
    assert record.uid == "new"
