# SPDX-License-Identifier: Apache-2.0
"""The launch of a node."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudRefused
from nodepool.driver.kubernetes.client import CLUSTER_ROLES
from nodepool.driver.kubernetes.cloud import KubeCloud, SharedRoles
from nodepool.driver.kubernetes.create import ACCOUNT_SECONDS, NOT_YET, NOT_YET_TIMES, NamespaceCreation
from nodepool.driver.kubernetes.errors import NoTokenYet, NotYet
from nodepool.driver.kubernetes.objects import NAMESPACE_RULES, POD_RULES
from nodepool.driver.statemachine import CreationKey
from nodepool.exceptions import LaunchStatusException
from nodepool.logconfig import ContextLogger
from tests.support.manual_clock import ManualClock
from tests.support.wait import wait_for
from tests.unit.driver.kubernetes.stand_in import StandIn
from tests.unit.driver.kubernetes.test_objects import METADATA, label_of

KEY = CreationKey("cluster", "7", 1)
EXISTS = CloudRefused("exists", 409, "exists", "AlreadyExists")


@pytest.fixture
def client() -> StandIn:
    found = StandIn()
    found.answers["GET", "/api/v1/namespaces/main-7"] = {"metadata": {"name": "main-7", "uid": "u", "labels": METADATA}}
    return found


@pytest.fixture
def cloud(client: StandIn) -> Iterator[KubeCloud]:
    made = KubeCloud("cluster", client)
    yield made
    made.stop()


def creation(cloud: KubeCloud, **keys: Any) -> NamespaceCreation:
    return NamespaceCreation(cloud, label_of(**keys), METADATA, None, ContextLogger(logging.getLogger("test")))


def test_id_is_known_first(cloud: KubeCloud, client: StandIn) -> None:
    """KU-9: what a launcher that is killed may leave is named in its node before anything is made."""
    machine = creation(cloud)
    machine.advance()
    assert machine.external_id == "main-7"
    assert machine.announced
    assert machine.next_advance_seconds == 0.0
    assert not client.calls


def test_order(cloud: KubeCloud, client: StandIn) -> None:
    """KU-2: one call for each object, and none to wait for it."""
    assert creation(cloud).create(KEY) == "main-7"
    assert [(method, path.rpartition("/")[2]) for method, path, _ in client.calls] == [
        ("POST", "namespaces"),
        ("POST", "serviceaccounts"),
        ("POST", "secrets"),
        ("POST", "roles"),
        ("POST", "rolebindings"),
        ("POST", "pods"),
    ]


def test_namespace_has_no_pod(cloud: KubeCloud, client: StandIn) -> None:
    """KU-2: a label of type namespace."""
    creation(cloud, type="namespace").create(KEY)
    assert not any(path.endswith("/pods") for _, path, _ in client.calls)


def test_lost_answer(cloud: KubeCloud, client: StandIn) -> None:
    """KU-2: names are keys: what is sent again finds what was made."""
    client.answers["POST", "/api/v1/namespaces"] = EXISTS
    client.answers["POST", "/api/v1/namespaces/main-7/secrets"] = EXISTS
    assert creation(cloud).create(KEY) == "main-7"


def test_namespace_of_somebody_else(cloud: KubeCloud, client: StandIn) -> None:
    """KU-12: it is not used, and nothing is made in it."""
    client.answers["POST", "/api/v1/namespaces"] = EXISTS
    client.answers["GET", "/api/v1/namespaces/main-7"] = {"metadata": {"name": "main-7", "labels": {}}}
    with pytest.raises(LaunchStatusException, match="somebody else"):
        creation(cloud).create(KEY)
    assert [method for method, *_ in client.calls] == ["POST", "GET"]


def test_not_yet(cloud: KubeCloud, client: StandIn) -> None:
    """KU-2: what the cluster makes by itself a moment later is waited for."""
    path = "/api/v1/namespaces/main-7/pods"
    client.answers["POST", path] = [NotYet("error looking up service account"), {"metadata": {"uid": "p"}}]
    machine = creation(cloud)
    with pytest.raises(NotYet) as refused:
        machine.create(KEY)
    assert machine.put_off(refused.value) == pytest.approx(0.05, abs=0.05)
    before = len(client.calls)
    assert machine.create(KEY) == "main-7"
    # What was made before is not sent again.
    assert [called for _, called, _ in client.calls[before:]] == [path]


def test_not_yet_is_a_state(cloud: KubeCloud, client: StandIn) -> None:
    """KU-2: no thread waits meanwhile; the machine says when it is to be advanced."""
    client.answers["POST", "/api/v1/namespaces/main-7/pods"] = [
        NotYet("error looking up service account"),
        {"metadata": {"uid": "p"}},
    ]
    machine = creation(cloud)
    now = 100.0
    machine.clock = lambda: now
    machine.advance()
    wait_for("it is put off", lambda: machine.advance() or machine.state == machine.REPEATING)
    assert machine.next_advance_seconds is not None
    assert 0 < machine.next_advance_seconds <= NOT_YET.longest_seconds
    assert "service account" in machine.waits_for
    now += machine.next_advance_seconds
    wait_for("it is made", lambda: machine.advance() or machine.state == machine.BUILDING)


PODS_PATH = "/api/v1/namespaces/main-7/pods"


def pods_sent(client: StandIn) -> int:
    return [path for _, path, _ in client.calls].count(PODS_PATH)


@pytest.fixture
def told(cloud: KubeCloud) -> KubeCloud:
    """A cloud to which a test says what the watch of accounts would say."""
    cloud.accounts.stop()
    cloud.accounts.listed("account", [], 0.0)
    return cloud


def test_account_is_waited_for(told: KubeCloud, client: StandIn) -> None:
    """KU-2: the pod is not sent before the cluster has made the account of its namespace; then it is at once."""
    machine = creation(told)
    clock = machine.clock = ManualClock()
    woken: list[float] = []
    machine.wake = lambda: woken.append(clock.now)
    machine.advance()
    wait_for("it is put off", lambda: machine.advance() or machine.state == machine.REPEATING)
    assert "service account" in machine.waits_for
    before = len(woken)
    told.accounts.changed("account", {"metadata": {"name": "default", "namespace": "main-7"}}, gone=False)
    assert len(woken) == before + 1
    assert pods_sent(client) == 0
    wait_for("it is made", lambda: machine.advance() or machine.state == machine.BUILDING)
    assert pods_sent(client) == 1


def test_account_that_was_told_before_the_answer_was_lost(told: KubeCloud, client: StandIn) -> None:
    """KU-2: the namespace is there, its answer was lost: it is sent again, and its account is not told once more."""
    machine = creation(told)
    client.answers["POST", "/api/v1/namespaces"] = [CloudAway("no answer"), EXISTS]
    with pytest.raises(CloudAway):
        machine.create(KEY)
    told.accounts.changed("account", {"metadata": {"name": "default", "namespace": "main-7"}}, gone=False)
    machine.create(KEY)
    assert client.calls[-1][1] == "/api/v1/namespaces/main-7/pods"


def test_account_of_a_namespace_that_was_there(told: KubeCloud, client: StandIn) -> None:
    """KU-2: a late order of the attempt before has made it: its account was told before this launch waited for it."""
    client.answers["POST", "/api/v1/namespaces"] = EXISTS
    told.accounts.changed("account", {"metadata": {"name": "default", "namespace": "main-7"}}, gone=False)
    assert creation(told).create(KEY) == "main-7"


def test_account_that_is_not_told_of(told: KubeCloud, client: StandIn) -> None:
    """KU-2: a watch may be dead: after a while the pod is sent all the same."""
    machine = creation(told)
    clock = machine.clock = ManualClock()
    machine.advanced_at = clock.now
    with pytest.raises(NotYet) as refused:
        machine.create(KEY)
    pause = machine.put_off(refused.value)
    assert pause == ACCOUNT_SECONDS
    clock.pass_seconds(pause)
    assert machine.create(KEY) == "main-7"


def test_account_without_a_token(told: KubeCloud, client: StandIn) -> None:
    """KU-2: an old cluster refuses the pod once; then nobody tries again before the account has a token."""
    machine = creation(told)
    machine.clock = ManualClock()
    client.answers["POST", PODS_PATH] = [NoTokenYet("No API token found"), {"metadata": {"uid": "p"}}]
    machine.wake = lambda: None
    machine.advance()
    account = {"metadata": {"name": "default", "namespace": "main-7"}}
    wait_for("it is put off", lambda: machine.advance() or machine.state == machine.REPEATING)
    told.accounts.changed("account", account, gone=False)
    wait_for("it is refused", lambda: machine.advance() or pods_sent(client) == 1)
    wait_for("it is put off", lambda: machine.advance() or machine.state == machine.REPEATING)
    machine.advance()
    assert machine.state == machine.REPEATING
    told.accounts.changed("account", {**account, "secrets": [{"name": "default-token-x"}]}, gone=False)
    wait_for("it is made", lambda: machine.advance() or machine.state == machine.BUILDING)
    assert pods_sent(client) == 2


@pytest.mark.parametrize("keys", [{"type": "namespace"}, {"spec": {"serviceAccountName": "builder", "containers": []}}])
def test_account_that_is_not_needed(told: KubeCloud, client: StandIn, keys: dict[str, Any]) -> None:
    """KU-2, KU-5: nothing waits for it."""
    assert creation(told, **keys).create(KEY) == "main-7"


def test_not_for_ever(cloud: KubeCloud, client: StandIn) -> None:
    """KU-2: at last it is an error."""
    client.answers["POST", "/api/v1/namespaces/main-7/pods"] = NotYet("error looking up service account")
    machine = creation(cloud)
    with pytest.raises(NotYet) as refused:
        machine.create(KEY)
    for _ in range(NOT_YET_TIMES):
        assert machine.put_off(refused.value) is not None
    assert machine.put_off(refused.value) is None


@pytest.mark.parametrize("kind", ["pod", "namespace"])
def test_shared_roles(cloud: KubeCloud, client: StandIn, kind: str) -> None:
    """KU-3: a cluster role is made once for all nodes, and bound in the namespace: one call less a node."""
    share(cloud, client)
    creation(cloud, type=kind).create(KEY)
    role = "nodepool-zuul-restricted" if kind == "pod" else "nodepool-zuul"
    (made,) = [body for _, path, body in client.calls if path == CLUSTER_ROLES]
    assert made["metadata"]["name"] == role
    assert made["rules"] == (POD_RULES if kind == "pod" else NAMESPACE_RULES)
    (binding,) = [body for _, path, body in client.calls if path.endswith("/rolebindings")]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    assert not any(path.endswith("/roles") for _, path, _ in client.calls)
    before = len(client.calls)
    creation(cloud, type=kind).create(KEY)
    # With the deletion that makes five.
    assert len(client.calls) - before == 4


def share(cloud: KubeCloud, client: StandIn) -> None:
    """As the adapter does if ``shared-roles`` is not said."""
    cloud.shared_roles = SharedRoles(client, required=False)
    cloud.shares_accounts = True


def bodies(client: StandIn) -> dict[str, Any]:
    """What was made, by kind."""
    return {path.rpartition("/")[2]: body for _, path, body in client.calls}


def test_account_of_the_cluster(cloud: KubeCloud, client: StandIn) -> None:
    """KU-2: with shared roles the account is the one that the cluster makes; the pod itself gets no token of it."""
    share(cloud, client)
    creation(cloud).create(KEY)
    made = bodies(client)
    # The API takes the pod when the account is there, and a secret that came before the account would be deleted.
    assert list(made) == ["namespaces", "clusterroles", "rolebindings", "pods", "secrets"]
    (subject,) = made["rolebindings"]["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "default", "namespace": "main-7"}
    assert made["secrets"]["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "default"}
    assert made["secrets"]["metadata"]["name"] == "zuul-worker"
    assert made["pods"]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("keys", [{"type": "namespace"}, {"type": "pod", "spec": {"containers": []}}])
def test_account_of_its_own(cloud: KubeCloud, client: StandIn, keys: dict[str, Any]) -> None:
    """KU-3, KU-5: what a job runs in its namespace, and a pod whose spec we do not change, get no rights by it."""
    share(cloud, client)
    creation(cloud, **keys).create(KEY)
    made = bodies(client)
    assert made["serviceaccounts"]["metadata"]["name"] == "zuul-worker"
    (subject,) = made["rolebindings"]["subjects"]
    assert subject["name"] == "zuul-worker"
    if "pods" in made:
        assert made["pods"]["spec"] == keys["spec"]


def test_pod_as_released(cloud: KubeCloud, client: StandIn) -> None:
    """KU-4: with ``shared-roles: false`` nothing is said about the token that the cluster puts into a container."""
    creation(cloud).create(KEY)
    assert "automountServiceAccountToken" not in bodies(client)["pods"]["spec"]


def test_shared_role_that_is_there(cloud: KubeCloud, client: StandIn) -> None:
    """KU-3: another launcher, or an operator, made it: it is used as it is."""
    share(cloud, client)
    client.answers["POST", CLUSTER_ROLES] = EXISTS
    client.answers["GET", f"{CLUSTER_ROLES}/nodepool-zuul-restricted"] = {"rules": POD_RULES}
    creation(cloud).create(KEY)
    assert bodies(client)["rolebindings"]["roleRef"]["kind"] == "ClusterRole"


def test_no_right_to_make_cluster_roles(cloud: KubeCloud, client: StandIn) -> None:
    """KU-2, KU-3: the namespace gets a role; the account is that of the cluster all the same: six calls."""
    share(cloud, client)
    client.answers["POST", CLUSTER_ROLES] = CloudRefused("no", 403, "403 Forbidden")
    creation(cloud).create(KEY)
    made = bodies(client)
    assert list(made) == ["namespaces", "clusterroles", "roles", "rolebindings", "pods", "secrets"]
    assert made["rolebindings"]["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "zuul-restricted",
    }
    assert made["rolebindings"]["subjects"][0]["name"] == "default"
    before = len(client.calls)
    creation(cloud).create(KEY)
    # With the deletion that makes six.
    assert len(client.calls) - before == 5


def test_shared_role_that_cannot_be_bound(cloud: KubeCloud, client: StandIn) -> None:
    """KU-3: somebody gave it rights that we do not have: the next attempt goes without it."""
    share(cloud, client)
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/main-7/rolebindings"
    client.answers["POST", path] = [CloudRefused("no", 403, "403 Forbidden"), {"metadata": {"uid": "b"}}]
    first = creation(cloud)
    with pytest.raises(CloudRefused) as refused:
        first.create(KEY)
    assert first.refused(refused.value) is refused.value
    creation(cloud).create(KEY)
    assert bodies(client)["rolebindings"]["roleRef"]["kind"] == "Role"


def test_shared_role_that_was_deleted(cloud: KubeCloud, client: StandIn) -> None:
    """KU-3: the attempt fails with the API's words, and the next one makes the role again."""
    share(cloud, client)
    text = 'clusterroles.rbac.authorization.k8s.io "nodepool-zuul-restricted" not found'
    client.answers["POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/main-7/rolebindings"] = [
        CloudNotFound("no", 404, f"404 NotFound: {text}"),
        {"metadata": {"uid": "b"}},
    ]
    first = creation(cloud)
    with pytest.raises(CloudNotFound) as refused:
        first.create(KEY)
    assert first.refused(refused.value) is refused.value
    creation(cloud).create(KEY)
    assert [path for _, path, _ in client.calls].count(CLUSTER_ROLES) == 2
