# SPDX-License-Identifier: Apache-2.0
"""Pods in projects that are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNotFound
from nodepool.driver.openshift.adapter import PodCloud
from nodepool.exceptions import NotFound
from tests.support.tables import driver_table
from tests.unit.driver.kubernetes.stand_in import StandIn

MISSING = CloudNotFound("no", 404)


@pytest.fixture
def client() -> StandIn:
    return StandIn()


@pytest.fixture
def cloud(client: StandIn) -> Iterator[PodCloud]:
    made = PodCloud("os", client, ["a", "a-b"])
    yield made
    made.stop()


def pod(uid: str = "u", project: str = "a", name: str = "p-1", provider: str = "os", **status: Any) -> dict[str, Any]:
    labels = {"nodepool_provider_name": provider, "nodepool_node_id": "1"}
    return {"metadata": {"name": name, "namespace": project, "uid": uid, "labels": labels}, "status": status}


def test_project_of_a_pod(cloud: PodCloud, client: StandIn) -> None:
    """OS-7: a project's name may be the beginning of another's: the pod that is there says which one it is. If there is
    no such project, or no pod of ours, nothing is deleted.
    """
    client.answers["GET", "/api/v1/namespaces/a-b/pods/pod-7"] = MISSING
    client.answers["GET", "/api/v1/namespaces/a/pods/b-pod-7"] = pod(name="b-pod-7")
    client.answers["GET", "/api/v1/namespaces/a/pods/x-1"] = pod(name="x-1", provider="another")
    for record_id in ("a-x-1", "c-x-1"):
        with pytest.raises(NotFound):
            cloud.delete_instance(record_id)
    cloud.delete_instance("a-b-pod-7")
    ((path, body),) = [(path, body) for method, path, body in client.calls if method == "DELETE"]
    assert (path, body["preconditions"]) == ("/api/v1/namespaces/a/pods/b-pod-7", {"uid": "u"})


@pytest.mark.parametrize(("steps", "uid", "gone"), driver_table("openshiftpods", "known_pods"))
def test_what_is_known(cloud: PodCloud, client: StandIn, steps: list[Any], uid: str | None, gone: bool) -> None:
    """OS-6, KU-10: of the pod p-1 of project a."""
    begun = None
    for what, *uids in steps:
        found = [pod(each) for each in uids]
        if what == "begin":
            begun = monotonic()
        elif what in ("watch", "other"):
            kind, listed = ("a", found) if what == "watch" else ("a-b", [pod(project="a-b")])
            cloud.listed(kind, listed, monotonic() if begun is None else begun)
        elif what == "list":
            client.lists = [([], "1"), (found, "1")]
            cloud.inventory.refresh(complete=True)
        elif what == "launch":
            cloud.awaited("a-p-1", None)
            cloud.made("a-p-1", uids[0])
        else:
            cloud.changed("a", found[0], gone=what == "end")
    record = cloud.inventory.get("a-p-1")
    assert (record and record.uid, cloud.inventory.is_gone("a-p-1")) == (uid, gone)
    assert bool(cloud.inventory.get("a-b-p-1")) is any(what == "other" for what, *_ in steps)
