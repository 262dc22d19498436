# SPDX-License-Identifier: Apache-2.0
"""What launches and deletions share."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused, CloudSetup
from nodepool.driver.kubernetes.adapter import KubeDeletion
from nodepool.driver.kubernetes.cloud import KubeCloud
from nodepool.driver.kubernetes.records import PLACE, POD, SECRET
from nodepool.exceptions import NotFound
from tests.support.manual_clock import ManualClock
from tests.support.manual_executor import ManualExecutor
from tests.unit.driver.kubernetes.stand_in import StandIn

LOG = logging.LoggerAdapter(logging.getLogger("test"), {})

OURS = {"nodepool_provider_name": "cluster", "nodepool_node_id": "1"}


def namespace(name: str, uid: str = "u", labels: dict[str, str] = OURS) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "labels": labels}}


@pytest.fixture
def client() -> StandIn:
    return StandIn()


@pytest.fixture
def cloud(client: StandIn) -> Iterator[KubeCloud]:
    made = KubeCloud("cluster", client)
    yield made
    made.stop()


def test_watches_feed_the_inventory(cloud: KubeCloud) -> None:
    """KU-10, KU-11: no call is made to know that a namespace is there, or gone."""
    cloud.listed(PLACE, [namespace("main-1")], 0.0)
    assert cloud.inventory.get("main-1") is not None
    pod = {"metadata": {"name": "p", "namespace": "main-1", "uid": "p"}, "status": {"phase": "Running"}}
    cloud.changed(POD, pod, gone=False)
    record = cloud.inventory.get("main-1")
    assert record is not None
    assert record.pod is not None
    cloud.changed(PLACE, namespace("main-1"), gone=True)
    assert cloud.inventory.is_gone("main-1")


def test_end_of_the_namespace_before(cloud: KubeCloud) -> None:
    """KU-10: the next attempt has the same name; the end of the last one's namespace may be told late."""
    cloud.listed(PLACE, [namespace("main-1", "old")], 0.0)
    cloud.awaited("main-1", None)
    cloud.made("main-1", "new")
    cloud.changed(PLACE, namespace("main-1", "old"), gone=True)
    assert not cloud.inventory.is_gone("main-1")
    cloud.changed(PLACE, namespace("main-1", "new"), gone=False)
    record = cloud.inventory.get("main-1")
    assert record is not None
    assert record.uid == "new"


def test_list_of_a_watch_that_lacks_namespaces(cloud: KubeCloud) -> None:
    """KU-11: what the list of a watch lacks is gone, also if something was told of its content since the list began."""
    cloud.listed(PLACE, [namespace("main-1"), namespace("main-2")], 0.0)
    started = monotonic()
    pod = {"metadata": {"name": "p", "namespace": "main-1", "uid": "p"}, "status": {"phase": "Running"}}
    cloud.changed(POD, pod, gone=False)
    cloud.listed(PLACE, [namespace("main-2")], started)
    assert cloud.inventory.is_gone("main-1")
    assert cloud.inventory.get("main-1") is None
    assert cloud.inventory.get("main-2") is not None


def test_list_of_a_watch_that_is_older_than_what_is_known(cloud: KubeCloud, client: StandIn) -> None:
    """KU-11: a list that began earlier does not take the end of a namespace from one that was made since then."""
    cloud.listed(PLACE, [namespace("main-1", "old")], 0.0)
    older = monotonic()
    # Another list began later, and has a new namespace of that name, and one more.
    client.lists = [([namespace("main-1", "new"), namespace("main-2")], "2")]
    cloud.inventory.refresh(complete=True)
    cloud.listed(PLACE, [], older)
    assert not cloud.inventory.is_gone("main-1")
    assert sorted((record.id, record.uid) for record in cloud.inventory.known()) == [("main-1", "new"), ("main-2", "u")]


def test_end_that_is_told_after_a_newer_list(cloud: KubeCloud, client: StandIn) -> None:
    """KU-10: the end of a namespace is not the end of another one that a list has shown under its name."""
    cloud.listed(PLACE, [namespace("main-1", "old")], 0.0)
    client.lists = [([namespace("main-1", "new")], "2")]
    cloud.inventory.refresh(complete=True)
    cloud.changed(PLACE, namespace("main-1", "old"), gone=True)
    record = cloud.inventory.get("main-1")
    assert record is not None
    assert record.uid == "new"


def test_one_bad_object(cloud: KubeCloud) -> None:
    """KU-12: what cannot be understood is left out, and nothing else."""
    cloud.listed(PLACE, [{"metadata": {}}, namespace("main-1")], 0.0)
    assert cloud.inventory.get("main-1") is not None


def test_deletion(cloud: KubeCloud, client: StandIn) -> None:
    """KU-11: in the background, of this very namespace."""
    cloud.listed(PLACE, [namespace("main-1", "uid-1")], 0.0)
    cloud.delete_instance("main-1")
    ((method, path, body),) = client.calls
    assert (method, path) == ("DELETE", "/api/v1/namespaces/main-1")
    assert body["propagationPolicy"] == "Background"
    assert body["preconditions"] == {"uid": "uid-1"}


def test_deletion_of_a_foreign_namespace(cloud: KubeCloud, client: StandIn) -> None:
    """KU-12: a namespace of somebody else is not deleted, whatever its name is."""
    client.answers["GET", "/api/v1/namespaces/main-1"] = namespace("main-1", labels={})
    with pytest.raises(NotFound):
        cloud.delete_instance("main-1")
    assert [method for method, *_ in client.calls] == ["GET"]


NAMESPACE_1 = "/api/v1/namespaces/main-1"
OTHER_UID = CloudRefused("no", 409, "Precondition failed: UID in precondition: u", "Conflict")


def test_deletion_that_has_begun(cloud: KubeCloud, client: StandIn) -> None:
    """KU-11: ordered twice it is no error."""
    cloud.listed(PLACE, [namespace("main-1")], 0.0)
    busy = CloudRefused("being deleted", 409, "409 Conflict: content is being removed", "Conflict")
    client.answers["DELETE", NAMESPACE_1] = busy
    cloud.delete_instance("main-1")


def test_deletion_while_the_name_is_somebody_elses(cloud: KubeCloud, client: StandIn) -> None:
    """KU-11, KU-12: another namespace of the name is not ours to delete."""
    cloud.listed(PLACE, [namespace("main-1")], 0.0)
    client.answers["DELETE", NAMESPACE_1] = OTHER_UID
    client.answers["GET", NAMESPACE_1] = namespace("main-1", "theirs", {})
    with pytest.raises(NotFound):
        cloud.delete_instance("main-1")


def test_deletion_of_what_another_launcher_made_anew(cloud: KubeCloud, client: StandIn) -> None:
    """KU-10, KU-11: the watch is late: it has told of the namespace of the attempt before, not of the present one."""
    cloud.listed(PLACE, [namespace("main-1", "old")], 0.0)
    client.answers["DELETE", NAMESPACE_1] = [OTHER_UID, {}]
    client.answers["GET", NAMESPACE_1] = namespace("main-1", "new")
    cloud.delete_instance("main-1")
    assert client.calls[-1][2]["preconditions"] == {"uid": "new"}
    cloud.changed(PLACE, namespace("main-1", "old"), gone=True)
    assert not cloud.inventory.is_gone("main-1"), "that is the end of another one"
    cloud.changed(PLACE, namespace("main-1", "new"), gone=False)
    cloud.changed(PLACE, namespace("main-1", "new"), gone=True)
    assert cloud.inventory.is_gone("main-1")


def test_end_of_the_attempt_before_ends_no_deletion(
    cloud: KubeCloud, client: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KU-10, KU-11: the namespace of the attempt before is gone; another launcher has made one since."""
    cloud.listed(PLACE, [namespace("main-1", "old")], 0.0)
    cloud.changed(PLACE, namespace("main-1", "old"), gone=True)
    client.answers["GET", NAMESPACE_1] = namespace("main-1", "new")
    monkeypatch.setattr(cloud.inventory, "_start", lambda: None)
    monkeypatch.setattr(cloud, "others", ManualExecutor())
    deletion = KubeDeletion(cloud, "main-1", LOG)
    deletion.advance()
    assert not deletion.complete
    assert client.calls[-1][2]["preconditions"] == {"uid": "new"}
    cloud.changed(PLACE, namespace("main-1", "new"), gone=False)
    cloud.changed(PLACE, namespace("main-1", "new"), gone=True)
    deletion.advance()
    assert deletion.complete


def test_nothing_is_kept_of_a_deletion(cloud: KubeCloud, client: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """KU-11: a node was deleted that no watch ever told of."""
    client.answers["GET", NAMESPACE_1] = namespace("main-1", "new")
    client.answers["DELETE", NAMESPACE_1] = CloudNotFound("gone meanwhile", 404)
    monkeypatch.setattr(cloud.inventory, "_start", lambda: None)
    monkeypatch.setattr(cloud, "others", ManualExecutor())
    deletion = KubeDeletion(cloud, "main-1", LOG)
    deletion.advance()
    deletion.advance()
    assert deletion.complete
    assert not cloud.made_anew("main-1", "older")


def test_what_cannot_be_watched_is_asked_for(cloud: KubeCloud, client: StandIn) -> None:
    """KU-3: without the right to watch pods each launch asks for its own, and only while it waits."""
    cloud.listed(PLACE, [namespace("main-1")], 0.0)
    cloud.refused(POD, CloudSetup("no", 403))
    assert cloud.inventory.lists
    pod = {"metadata": {"name": "p", "namespace": "main-1", "uid": "p"}, "status": {"phase": "Running"}}
    client.answers["GET", "/api/v1/namespaces/main-1/pods/p"] = pod
    cloud.awaited("main-1", "p")
    client.lists = [([namespace("main-1")], str(version)) for version in range(3)]
    cloud.list_instances(None)
    assert not client.calls, "the pod is not made yet"
    cloud.filled("main-1")
    (record,) = cloud.list_instances(None)
    assert record.pod is not None
    cloud.over("main-1")
    cloud.list_instances(None)
    assert len(client.calls) == 1
    cloud.refused(POD, None)
    assert not cloud.inventory.lists


POD_1 = "/api/v1/namespaces/main-1/pods/p"
SECRET_1 = "/api/v1/namespaces/main-1/secrets/zuul-worker"


def test_looks_depend_on_the_age_of_a_launch(cloud: KubeCloud, client: StandIn) -> None:
    """KU-3: however often lists come, a launch looks at its pod ever more seldom, at the token when the pod runs."""
    clock = cloud.clock = ManualClock()
    cloud.listed(PLACE, [namespace("main-1")], 0.0)
    for kind in (POD, SECRET):
        cloud.refused(kind, CloudSetup("no", 403))
    pod = {"metadata": {"name": "p", "namespace": "main-1", "uid": "p"}, "status": {"phase": "Pending"}}
    client.answers["GET", POD_1] = pod
    data = {"token": base64.b64encode(b"secret").decode()}
    meta = {"name": "zuul-worker", "namespace": "main-1", "uid": "s"}
    client.answers["GET", SECRET_1] = {"type": "kubernetes.io/service-account-token", "metadata": meta, "data": data}
    cloud.awaited("main-1", "p")
    cloud.filled("main-1")
    for _ in range(100):
        client.lists = [([namespace("main-1")], "1")]
        cloud.list_instances(None)
        clock.pass_seconds(0.1)
    paths = [path for _, path, _ in client.calls]
    assert SECRET_1 not in paths
    # With a look in each list it would be 100.
    assert 10 <= len(paths) <= 18
    pod["status"] = {"phase": "Running"}
    clock.pass_seconds(5.0)
    client.lists = [([namespace("main-1")], "1")]
    (record,) = cloud.list_instances(None)
    assert record.token is not None
    assert [path for _, path, _ in client.calls][-2:] == [POD_1, SECRET_1]


def test_what_may_not_be_read_disturbs_no_other_launch(cloud: KubeCloud, client: StandIn) -> None:
    """OS-1, OS-5: rights in one namespace have not come, or have gone: the list is that of all launches."""
    cloud.listed(PLACE, [namespace("main-1"), namespace("main-2")], 0.0)
    cloud.refused(POD, CloudSetup("no", 403))
    client.answers["GET", POD_1] = CloudSetup("forbidden", 403)
    pod = {"metadata": {"name": "p", "namespace": "main-2", "uid": "p"}, "status": {"phase": "Running"}}
    client.answers["GET", "/api/v1/namespaces/main-2/pods/p"] = pod
    for name in ("main-1", "main-2"):
        cloud.awaited(name, "p")
        cloud.filled(name)
    client.lists = [([namespace("main-1"), namespace("main-2")], "1")]
    first, second = cloud.list_instances(None)
    assert first.pod is None
    assert second.pod is not None


class TestLost:
    """D-9: a watch tells at once what somebody else deleted."""

    @pytest.fixture
    def lost(self, cloud: KubeCloud) -> list[tuple[str, ...]]:
        told: list[tuple[str, ...]] = []
        cloud.on_lost = lambda *lost: told.append(lost)
        cloud.listed(PLACE, [namespace("main-1")], 0.0)
        cloud.changed(POD, pod("Running"), gone=False)
        assert told == []
        return told

    def test_namespace(self, cloud: KubeCloud, lost: list[tuple[str, ...]]) -> None:
        cloud.changed(PLACE, namespace("main-1"), gone=True)
        assert lost == [("1", "main-1", "NotFound", "main-1 was deleted")]

    def test_namespace_that_ends(self, cloud: KubeCloud, lost: list[tuple[str, ...]]) -> None:
        ending = namespace("main-1")
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        cloud.changed(PLACE, ending, gone=False)
        assert lost == [("1", "main-1", "Terminating", "main-1 is being deleted")]

    def test_pod(self, cloud: KubeCloud, lost: list[tuple[str, ...]]) -> None:
        cloud.changed(POD, pod("Running"), gone=True)
        assert lost == [("1", "main-1", "NotFound", "pod p of namespace main-1 was deleted")]

    def test_evicted(self, cloud: KubeCloud, lost: list[tuple[str, ...]]) -> None:
        """In the cluster's words."""
        cloud.changed(POD, pod("Failed", reason="Evicted", message="The node was low on memory."), gone=False)
        text = "the pod is Failed: Evicted; The node was low on memory."
        assert lost == [("1", "main-1", "Pod", text)]

    def test_restarts(self, cloud: KubeCloud, lost: list[tuple[str, ...]]) -> None:
        """A container that the kubelet starts again."""
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
        cloud.changed(POD, pod("Running", containerStatuses=[{"name": "c", "state": state}]), gone=False)
        assert lost == []


def pod(phase: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "main-1", "uid": "p"}, "status": {"phase": phase, **status}}
