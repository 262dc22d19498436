# SPDX-License-Identifier: Apache-2.0
"""What happens in the simulated cluster, on a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.testing.kubernetes.access import AccessQuestion, account_user
from nodepool.testing.kubernetes.cluster import Cluster
from nodepool.testing.kubernetes.errors import Refused
from nodepool.testing.kubernetes.kinds import ACCOUNTS, BINDINGS, CONFIG_MAPS, NAMESPACES, PODS, ROLES, ObjectPath
from nodepool.testing.kubernetes.settings import KubernetesSettings, PodRule
from tests.support.kubernetes_client import pod_body
from tests.support.manual_clock import ManualClock

Json = dict[str, Any]


class Played:
    """A cluster and its clock; all calls are those of its administrator."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        slow = {"start_seconds": (10, 10), "stop_seconds": (5, 5), "namespace_seconds": (3, 3), "token_seconds": (1, 1)}
        self.cluster = Cluster(KubernetesSettings(**{**slow, **settings}), clock=self.clock)
        self.cluster.core.run_due()
        self._admin = self.cluster.access.user(f"Bearer {self.cluster.tokens['admin']}")

    def after(self, seconds: float) -> None:
        """Time passes, and what is due happens."""
        self.clock.pass_seconds(seconds)
        self.cluster.core.run_due()

    def namespace(self, name: str = "space") -> str:
        self.cluster.add_namespace(name)
        self.cluster.core.run_due()
        return name

    def create(self, kind: Any, namespace: str, body: Json) -> Json:
        made = self.cluster.resources.create(ObjectPath(kind, namespace), self._admin, body)
        self.cluster.core.run_due()
        return made

    def pod(self, name: str = "pod", **wishes: Any) -> Json:
        return self.create(PODS, "space", pod_body(name, **wishes))

    def status(self, name: str = "pod") -> Json:
        found: Json = self.cluster.store.get(PODS, "space", name)["status"]
        return found

    def delete(self, kind: Any, namespace: str, name: str, **options: Any) -> None:
        self.cluster.resources.delete(ObjectPath(kind, namespace, name), options)
        self.cluster.core.run_due()

    def waiting(self, name: str = "pod") -> str:
        reason: str = self.status(name)["containerStatuses"][0]["state"]["waiting"]["reason"]
        return reason


@pytest.fixture
def played() -> Played:
    made = Played()
    made.namespace()
    return made


def test_a_pod_takes_its_time(played: Played) -> None:
    played.pod()
    assert played.waiting() == "ContainerCreating"
    played.after(9)
    assert played.status()["phase"] == "Pending"
    played.after(1)
    assert played.status()["phase"] == "Running"
    played.delete(PODS, "space", "pod")
    played.after(4)
    assert played.status()["phase"] == "Running"
    played.after(1)
    assert played.cluster.store.find(PODS, "space", "pod") is None


def test_the_grace_period_is_the_longest_that_an_end_takes(played: Played) -> None:
    played.pod(grace=2)
    played.after(10)
    played.delete(PODS, "space", "pod")
    played.after(2)
    assert played.cluster.store.find(PODS, "space", "pod") is None


@pytest.mark.parametrize(
    ("outcome", "reasons"),
    [
        ("image-pull-error", ["ErrImagePull", "ImagePullBackOff"]),
        ("config-error", ["CreateContainerConfigError", "CreateContainerConfigError"]),
        ("invalid-image", ["InvalidImageName", "InvalidImageName"]),
    ],
)
def test_a_container_that_waits(outcome: str, reasons: list[str]) -> None:
    played = Played(pods=[PodRule(outcome=outcome, mends_seconds=60)], backoff_seconds=(5, 5))
    played.namespace()
    played.pod()
    played.after(10)
    first = played.waiting()
    played.after(5)
    assert [first, played.waiting()] == reasons
    played.after(60)
    assert played.status()["phase"] == "Running"


@pytest.mark.parametrize(("policy", "phase"), [("Never", "Failed"), ("OnFailure", "Running"), ("Always", "Running")])
def test_a_container_that_ends_is_started_again_as_the_policy_says(policy: str, phase: str) -> None:
    played = Played(pods=[PodRule(outcome="failed", after_seconds=30)])
    played.namespace()
    body = pod_body("pod")
    body["spec"]["restartPolicy"] = policy
    played.create(PODS, "space", body)
    played.after(10)
    assert played.status()["phase"] == "Running"
    played.after(30)
    assert played.status()["phase"] == phase
    state = played.status()["containerStatuses"][0]["state"]
    assert list(state) == (["terminated"] if phase == "Failed" else ["waiting"])


def test_rules_apply_as_often_as_they_say() -> None:
    played = Played(pods=[PodRule(outcome="pending", pod="space/o*", count=1)])
    played.namespace()
    for name in ("two", "one", "other"):
        played.pod(name)
    played.after(10)
    assert [played.status(name)["phase"] for name in ("two", "one", "other")] == ["Running", "Pending", "Running"]


def test_a_stuck_pod_holds_its_namespace(played: Played) -> None:
    played.cluster.core.knobs.pods = [PodRule(stuck=True)]
    played.pod()
    played.after(10)
    played.delete(NAMESPACES, "", "space")
    played.after(100)
    namespace = played.cluster.store.get(NAMESPACES, "", "space")
    (text,) = [c["message"] for c in namespace["status"]["conditions"] if c["type"] == "NamespaceContentRemaining"]
    assert text == "Some resources are remaining: pods. has 1 resource instances"
    played.cluster.pods.release_stuck()
    played.after(0)
    assert played.cluster.namespaces() == []


def test_a_namespace_can_be_held(played: Played) -> None:
    played.cluster.hold("space")
    played.delete(NAMESPACES, "", "space")
    played.after(100)
    assert played.cluster.namespaces() == ["space"]
    played.cluster.release("space")
    played.after(0)
    assert played.cluster.namespaces() == []


def test_a_pod_that_finds_no_room_waits_for_it() -> None:
    played = Played()
    played.namespace()
    played.pod("first", requests={"cpu": "40"})
    played.pod("second", requests={"cpu": "40"})
    (condition,) = played.status("second")["conditions"]
    assert condition["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    played.after(10)
    played.delete(PODS, "space", "first")
    played.after(5)
    played.after(10)
    assert played.status("second")["phase"] == "Running"


def test_a_pod_that_has_ended_gives_its_room_back_once(played: Played) -> None:
    played.pod("first", requests={"cpu": "40"}, outcome="succeeded")
    played.pod("second", requests={"cpu": "40"})
    played.after(10)
    played.after(10)
    assert played.status("second")["phase"] == "Running"
    played.delete(PODS, "space", "first")
    played.pod("third", requests={"cpu": "40"})
    assert played.status("third")["conditions"][0]["reason"] == "Unschedulable"


def test_no_token_secret_comes_by_itself(played: Played) -> None:
    """As since Kubernetes 1.24."""
    played.after(100)
    assert "secrets" not in played.cluster.store.get(ACCOUNTS, "space", "default")


def test_openshift_lists_secrets_without_a_token() -> None:
    """As OpenShift since Kubernetes 1.24: OS-2."""
    played = Played(openshift=True)
    played.namespace()
    played.after(1)
    (listed,) = played.cluster.store.get(ACCOUNTS, "space", "default")["secrets"]
    assert listed["name"].startswith("default-dockercfg-")


def test_dependents_go_with_their_owner(played: Played) -> None:
    owner = played.create(CONFIG_MAPS, "space", {"metadata": {"name": "owner"}})
    owners = [{"kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]
    played.create(CONFIG_MAPS, "space", {"metadata": {"name": "dependent", "ownerReferences": owners}})
    played.delete(CONFIG_MAPS, "space", "owner")
    assert played.cluster.store.find(CONFIG_MAPS, "space", "dependent") is None


def test_a_role_allows_what_it_names(played: Played) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}]
    played.create(ROLES, "space", {"metadata": {"name": "role"}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "default"}
    reference = {"kind": "Role", "name": "role"}
    played.create(BINDINGS, "space", {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [subject]})
    allows = played.cluster.access.allows
    user = account_user("space", "default")
    assert allows(user, AccessQuestion("get", "", "pods/log", "space", "pod"))
    assert not allows(user, AccessQuestion("get", "", "pods", "space", "pod"))
    assert not allows(user, AccessQuestion("get", "", "pods/log", "other", "pod"))
    assert not allows(user, AccessQuestion("get", "", "pods/logs", "space", "pod"))


def test_a_new_token_takes_the_place_of_the_old_one(played: Played) -> None:
    old = played.cluster.tokens["admin"]
    new = played.cluster.new_token("admin")
    assert played.cluster.access.user(f"Bearer {new}").name == "admin"
    with pytest.raises(Refused, match="Unauthorized"):
        played.cluster.access.user(f"Bearer {old}")


def test_the_same_seed_gives_the_same_course() -> None:
    def order(seed: int) -> list[str]:
        clock = ManualClock()
        cluster = Cluster(KubernetesSettings(start_seconds=(1, 30)), seed, clock)
        cluster.add_namespace("space")
        cluster.core.run_due()
        admin = cluster.access.user(f"Bearer {cluster.tokens['admin']}")
        names = [f"pod-{number}" for number in range(20)]
        for name in names:
            cluster.resources.create(ObjectPath(PODS, "space"), admin, pod_body(name))
        found: list[str] = []
        for _ in range(31):
            clock.pass_seconds(1)
            cluster.core.run_due()
            phases = {name: cluster.store.get(PODS, "space", name)["status"]["phase"] for name in names}
            found += [name for name in names if phases[name] == "Running" and name not in found]
        return found

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert len(order(1)) == 20
