# SPDX-License-Identifier: Apache-2.0
"""Projects that were deleted, or in which we have no rights yet; pods in projects that are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudSetup
from nodepool.driver.kubernetes.client import NotYet
from nodepool.driver.openshift.adapter import (
    MANY_PROJECTS,
    RIGHTS_SECONDS,
    PodCloud,
    ProjectCloud,
)
from nodepool.exceptions import NotFound
from tests.support.manual_clock import ManualClock
from tests.support.tables import driver_table
from tests.unit.driver.kubernetes.stand_in import StandIn

PATH = "/apis/project.openshift.io/v1/projects/os-7"
FORBIDDEN = CloudSetup("forbidden", 403)


def project(name: str = "os-7") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": "u", "labels": {"nodepool_provider_name": "os", "nodepool_node_id": "7"}}}


@pytest.fixture
def client() -> StandIn:
    return StandIn()


@pytest.fixture
def cloud(client: StandIn) -> Iterator[ProjectCloud]:
    made = ProjectCloud("os", client)
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("seen", "answers", "looks"),
    [
        # OpenShift says 403 of a project that was deleted: of one that we saw before that is the proof.
        ("os-7", {"GET": FORBIDDEN}, [("get", 0, NotFound), ("delete", 0, NotFound)]),
        # One that is there was not deleted because we may not delete it.
        ("os-7", {"GET": project(), "DELETE": FORBIDDEN}, [("delete", 0, CloudSetup)]),
        # Of one that was not seen yet it proves nothing, until the time for rights is over.
        (
            "",
            {"GET": FORBIDDEN},
            [("delete", 0, NotYet), ("get", RIGHTS_SECONDS / 2, NotYet), ("get", RIGHTS_SECONDS / 2, NotFound)],
        ),
        # Rights that come late: who deletes it tries again, and finds it.
        ("", {"GET": [FORBIDDEN, project()]}, [("delete", 0, NotYet), ("delete", 0, None)]),
        # KU-10: the next attempt has the same name: what was seen of the one before says nothing.
        ("again", {"GET": FORBIDDEN}, [("get", 0, NotYet)]),
        # Projects that others delete are forgotten, when there are many.
        ("many", {"GET": FORBIDDEN}, [("get", 0, NotYet)]),
    ],
)
def test_projects_without_rights(cloud: ProjectCloud, client: StandIn, seen: str, answers: Any, looks: Any) -> None:
    """KU-10, OS-1, OS-5: was a project deleted, or have our rights not come yet?"""
    clock = ManualClock().rules()
    if seen:
        others = [project(f"os-{number}") for number in range(MANY_PROJECTS)]
        client.lists = [([*others, project()] if seen == "many" else [project()], "1"), ([project("os-new")], "2")]
        cloud.list_instances(None)
    if seen == "again":
        cloud.awaited("os-7", None)
    if seen == "many":
        cloud.list_instances(None)
    client.answers.update({(method, PATH): answer for method, answer in answers.items()})
    for what, seconds, kind in looks:
        clock.pass_seconds(seconds)
        look = cloud.get_instance if what == "get" else cloud.delete_instance
        if kind is None:
            look("os-7")
            assert client.calls[-1][:2] == ("DELETE", PATH)
        else:
            with pytest.raises(kind):
                look("os-7")


# -- pods in projects that are there --


@pytest.fixture
def pods(client: StandIn) -> Iterator[PodCloud]:
    made = PodCloud("os", client, ["a", "a-b"])
    yield made
    made.stop()


def pod(uid: str = "u", project: str = "a", name: str = "p-1", provider: str = "os", **status: Any) -> dict[str, Any]:
    labels = {"nodepool_provider_name": provider, "nodepool_node_id": "1"}
    return {"metadata": {"name": name, "namespace": project, "uid": uid, "labels": labels}, "status": status}


def test_project_of_a_pod(pods: PodCloud, client: StandIn) -> None:
    """OS-7: a project's name may be the beginning of another's: the pod that is there says which one it is. If there is
    no such project, or no pod of ours, nothing is deleted.
    """
    client.answers["GET", "/api/v1/namespaces/a-b/pods/pod-7"] = CloudNotFound("no", 404)
    client.answers["GET", "/api/v1/namespaces/a/pods/b-pod-7"] = pod(name="b-pod-7")
    client.answers["GET", "/api/v1/namespaces/a/pods/x-1"] = pod(name="x-1", provider="another")
    for record_id in ("a-x-1", "c-x-1"):
        with pytest.raises(NotFound):
            pods.delete_instance(record_id)
    pods.delete_instance("a-b-pod-7")
    ((path, body),) = [(path, body) for method, path, body in client.calls if method == "DELETE"]
    assert (path, body["preconditions"]) == ("/api/v1/namespaces/a/pods/b-pod-7", {"uid": "u"})


@pytest.mark.parametrize(("steps", "uid", "gone"), driver_table("openshift", "known_pods"))
def test_what_is_known(pods: PodCloud, client: StandIn, steps: list[Any], uid: str | None, gone: bool) -> None:
    """OS-6, KU-10: of the pod p-1 of project a."""
    begun = None
    for what, *uids in steps:
        found = [pod(each) for each in uids]
        if what == "begin":
            begun = monotonic()
        elif what in ("watch", "other"):
            kind, listed = ("a", found) if what == "watch" else ("a-b", [pod(project="a-b")])
            pods.listed(kind, listed, monotonic() if begun is None else begun)
        elif what == "list":
            client.lists = [([], "1"), (found, "1")]
            pods.inventory.refresh(complete=True)
        elif what == "launch":
            pods.awaited("a-p-1", None)
            pods.made("a-p-1", uids[0])
        else:
            pods.changed("a", found[0], gone=what == "end")
    record = pods.inventory.get("a-p-1")
    assert (record and record.uid, pods.inventory.is_gone("a-p-1")) == (uid, gone)
    assert bool(pods.inventory.get("a-b-p-1")) is any(what == "other" for what, *_ in steps)
