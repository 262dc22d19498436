# SPDX-License-Identifier: Apache-2.0
"""What drivers rely on in a cluster's API, tested with the official client.

The same tests run against the simulator (``tests/integration/test_kubernetes_simulator.py``) and against a real control
plane (``tests/functional/kubernetes/test_api.py``): what the simulator says is what the real one says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.kubernetes_client import ACCOUNT, KubernetesClient, Refusal, pod_body, refusal
from tests.support.wait import wait_for

T = TypeVar("T")
FINALIZER = "example.org/hold"
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
#: Every test has namespaces of its own: a real cluster keeps what earlier ones left for a while.
_NUMBERS = itertools.count(1)


@dataclass
class Place:
    """A cluster. :param expire: from now on no watch can begin at a version of before."""

    kubeconfig: Path
    expire: Callable[[], None]
    openshift: bool = True


def until(what: str, look: Callable[[], T | None]) -> T:
    """What `look` gives in the end."""
    found = wait_for(what, look)
    assert found is not None
    return found


def refused(call: Callable[[], object]) -> Refusal:
    """The call must be refused; what it is refused with."""
    found = refusal(call)
    assert found is not None, "it was not refused"
    return found


class KubernetesApiContract:
    """A subclass has a fixture ``place``."""

    @pytest.fixture
    def cluster(self, place: Place) -> Iterator[KubernetesClient]:
        client = KubernetesClient.of_context(place.kubeconfig)
        yield client
        client.close()

    @pytest.fixture
    def namespace(self, cluster: KubernetesClient) -> Iterator[str]:
        name = f"contract-{next(_NUMBERS)}"
        cluster.add_namespace(name, contract=name)
        yield name
        refusal(lambda: cluster.core.delete_namespace(name))

    # -- objects --

    def test_a_name_is_there_once(self, cluster: KubernetesClient, namespace: str) -> None:
        found = refused(lambda: cluster.core.create_namespace({"metadata": {"name": namespace}}))
        assert (found.status, found.reason) == (409, "AlreadyExists")
        assert found.message == f'namespaces "{namespace}" already exists'
        cluster.add_pod(namespace)
        found = refused(lambda: cluster.add_pod(namespace))
        assert (found.status, found.message) == (409, 'pods "pod" already exists')

    def test_names_and_labels_are_checked(self, cluster: KubernetesClient) -> None:
        found = refused(lambda: cluster.core.create_namespace({"metadata": {"name": "Not_this"}}))
        assert (found.status, found.reason) == (422, "Invalid")
        assert found.message.startswith(
            'Namespace "Not_this" is invalid: metadata.name: Invalid value: "Not_this": a low'
        )
        for value in ("not this", "x" * 64, "-x"):
            body = {"metadata": {"name": "labels", "labels": {"key": value}}}
            found = refused(lambda body=body: cluster.core.create_namespace(body))  # type: ignore[misc]
            assert found.status == 422
            assert found.message.startswith(
                f'Namespace "labels" is invalid: metadata.labels: Invalid value: "{value}": '
            )

    def test_what_is_not_there_is_not_found(self, cluster: KubernetesClient, namespace: str) -> None:
        found = refused(lambda: cluster.core.read_namespaced_pod("nothing", namespace))
        assert (found.status, found.reason, found.message) == (404, "NotFound", 'pods "nothing" not found')
        found = refused(lambda: cluster.add_pod("no-such-namespace"))
        assert (found.status, found.message) == (404, 'namespaces "no-such-namespace" not found')
        found = refused(lambda: cluster.core.delete_namespace("no-such-namespace"))
        assert found.status == 404

    def test_a_change_of_an_old_state_is_refused(self, cluster: KubernetesClient, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        made = cluster.call("POST", path, body={"metadata": {"name": "map"}, "data": {"a": "1"}})
        made["data"] = {"a": "2"}
        changed = cluster.call("PUT", f"{path}/map", body=made)
        assert int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
        found = refused(lambda: cluster.call("PUT", f"{path}/map", body=made))
        assert (found.status, found.reason) == (409, "Conflict")
        assert "please apply your changes to the latest version" in found.message

    def test_a_patch_changes_labels(self, cluster: KubernetesClient, namespace: str) -> None:
        body = {"metadata": {"labels": {"contract": None, "other": "x"}}}
        assert cluster.core.patch_namespace(namespace, body).metadata.labels.get("other") == "x"
        assert "contract" not in cluster.core.read_namespace(namespace).metadata.labels

    # -- pods --

    def test_a_pod_runs_and_ends(self, cluster: KubernetesClient, namespace: str) -> None:
        made = cluster.add_pod(namespace, labels={"a": "b"})
        assert (made.status.phase, made.spec.restart_policy) == ("Pending", "Never")
        assert (made.spec.service_account_name, made.metadata.labels) == ("default", {"a": "b"})
        pod = cluster.running(namespace)
        assert pod.spec.node_name
        assert pod.status.pod_ip
        assert pod.status.container_statuses[0].state.running is not None
        assert {item.type: item.status for item in pod.status.conditions}["PodScheduled"] == "True"
        left = cluster.core.delete_namespaced_pod("pod", namespace)
        assert left.metadata.name == "pod"
        wait_for("the pod is gone", lambda: refusal(lambda: cluster.pod(namespace)) is not None)

    def test_a_pod_needs_an_image(self, cluster: KubernetesClient, namespace: str) -> None:
        body = pod_body("pod")
        del body["spec"]["containers"][0]["image"]
        path = f"/api/v1/namespaces/{namespace}/pods"
        found = refused(lambda: cluster.call("POST", path, body=body))
        assert found.message == 'Pod "pod" is invalid: spec.containers[0].image: Required value'

    @pytest.mark.parametrize(("outcome", "phase"), [("failed", "Failed"), ("succeeded", "Succeeded")])
    def test_a_container_ends(self, cluster: KubernetesClient, namespace: str, outcome: str, phase: str) -> None:
        cluster.add_pod(namespace, outcome=outcome)
        pod = until("it ended", lambda: (found := cluster.pod(namespace)).status.phase == phase and found)
        state = pod.status.container_statuses[0].state.terminated
        assert (state.exit_code, state.reason) == ((1, "Error") if outcome == "failed" else (0, "Completed"))

    def test_an_image_that_is_not_there(self, cluster: KubernetesClient, namespace: str) -> None:
        cluster.add_pod(namespace, outcome="image-pull-error")

        def waiting() -> Any:
            statuses = cluster.pod(namespace).status.container_statuses or []
            return statuses and statuses[0].state.waiting

        reasons = ("ErrImagePull", "ImagePullBackOff")
        found = until("it says so", lambda: (state := waiting()) and state.reason in reasons and state)
        assert "docker.io/debian:12" in found.message
        assert cluster.pod(namespace).status.phase == "Pending"

    @pytest.mark.parametrize(
        ("wishes", "text"),
        [
            ({"selector": {"no": "such"}}, "1 node(s) didn't match"),
            ({"requests": {"cpu": "9999"}}, "1 Insufficient cpu"),
        ],
    )
    def test_a_pod_that_fits_nowhere(
        self, cluster: KubernetesClient, namespace: str, wishes: dict[str, Any], text: str
    ) -> None:
        cluster.add_pod(namespace, **wishes)
        conditions = wait_for("the scheduler has looked", lambda: cluster.pod(namespace).status.conditions)
        (found,) = [item for item in conditions if item.type == "PodScheduled"]
        assert (found.status, found.reason) == ("False", "Unschedulable")
        assert found.message.startswith("0/1 nodes are available: ")
        assert text in found.message
        # It has no node that would have to end it: it is gone at once.
        cluster.core.delete_namespaced_pod("pod", namespace)
        assert refused(lambda: cluster.pod(namespace)).status == 404

    # -- lists --

    def test_lists_select(self, cluster: KubernetesClient, namespace: str) -> None:
        for name, labels in (("one", {"a": "1"}), ("two", {"a": "2", "b": ""}), ("three", {})):
            cluster.add_pod(namespace, name, labels=labels)
        wanted = {
            "a=1": {"one"},
            "a==1": {"one"},
            "a!=1": {"two", "three"},
            "a": {"one", "two"},
            "!a": {"three"},
            "a in (1, 2)": {"one", "two"},
            "a notin (1)": {"two", "three"},
            "a,b=": {"two"},
        }
        for selector, names in wanted.items():
            items = cluster.core.list_namespaced_pod(namespace, label_selector=selector).items
            assert {item.metadata.name for item in items} == names, selector
        everywhere = cluster.core.list_pod_for_all_namespaces(field_selector=f"metadata.namespace={namespace}")
        assert len(everywhere.items) == 3
        for query in ({"labelSelector": "(("}, {"fieldSelector": "foo=bar"}):
            found = refused(lambda query=query: cluster.call("GET", "/api/v1/pods", query))  # type: ignore[misc]
            assert (found.status, found.reason) == (400, "BadRequest")

    def test_pages_are_the_whole_list(self, cluster: KubernetesClient, namespace: str) -> None:
        for number in range(7):
            cluster.core.create_namespaced_config_map(namespace, {"metadata": {"name": f"map-{number}"}})
        names, token = [], None
        while token != "":
            page = cluster.core.list_namespaced_config_map(namespace, limit=3, _continue=token or None)
            assert len(page.items) <= 3
            names += [item.metadata.name for item in page.items]
            token = page.metadata._continue if hasattr(page.metadata, "_continue") else page.metadata.var_continue
            token = token or ""
        assert [name for name in names if name.startswith("map-")] == [f"map-{number}" for number in range(7)]
        query = {"limit": "3", "continue": "xx"}
        assert refused(lambda: cluster.call("GET", "/api/v1/namespaces", query)).status == 400

    # -- watches --

    def test_a_watch_goes_on_where_a_list_ended(self, cluster: KubernetesClient, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        cluster.call("POST", path, body={"metadata": {"name": "before"}})
        version = cluster.call("GET", path)["metadata"]["resourceVersion"]
        cluster.call("POST", path, body={"metadata": {"name": "map"}})
        cluster.core.patch_namespaced_config_map("map", namespace, {"data": {"a": "1"}})
        cluster.core.delete_namespaced_config_map("map", namespace)
        events = list(itertools.islice(cluster.watch_lines(path, resourceVersion=version), 3))
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
            ("ADDED", "map"),
            ("MODIFIED", "map"),
            ("DELETED", "map"),
        ]
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
        assert int(version) < versions[0] < versions[1] < versions[2]
        assert events[0]["object"]["kind"] == "ConfigMap"

    def test_a_watch_without_a_version_begins_with_what_there_is(
        self, cluster: KubernetesClient, namespace: str
    ) -> None:
        lines = cluster.watch_lines("/api/v1/namespaces", labelSelector=f"contract={namespace}", timeoutSeconds=3)
        assert [(event["type"], event["object"]["metadata"]["name"]) for event in lines] == [("ADDED", namespace)]

    def test_a_watch_sees_what_its_selector_matches_no_more(self, cluster: KubernetesClient, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        version = cluster.call("GET", path)["metadata"]["resourceVersion"]
        cluster.call("POST", path, body={"metadata": {"name": "map"}})
        for value in ("1", "2"):
            cluster.core.patch_namespaced_config_map("map", namespace, {"metadata": {"labels": {"a": value}}})
        lines = cluster.watch_lines(path, resourceVersion=version, labelSelector="a=1")
        assert [event["type"] for event in itertools.islice(lines, 2)] == ["ADDED", "DELETED"]

    def test_a_watch_ends_with_a_bookmark(self, cluster: KubernetesClient, namespace: str) -> None:
        """Nothing else comes. The API server may leave bookmarks out, and does when nothing has changed anywhere."""
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        version = cluster.call("GET", path)["metadata"]["resourceVersion"]
        query = {"resourceVersion": version, "allowWatchBookmarks": "true", "timeoutSeconds": 4}
        for event in cluster.watch_lines(path, **query):
            assert (event["type"], event["object"]["kind"]) == ("BOOKMARK", "ConfigMap")
            assert int(event["object"]["metadata"]["resourceVersion"]) >= int(version)

    def test_a_watch_of_an_old_version_has_expired(
        self, place: Place, cluster: KubernetesClient, namespace: str
    ) -> None:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        version = cluster.call("GET", path)["metadata"]["resourceVersion"]
        cluster.call("POST", path, body={"metadata": {"name": "map"}})
        place.expire()
        (event,) = cluster.watch_lines(path, resourceVersion=version)
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert event["object"]["message"].startswith(f"too old resource version: {version} (")

    # -- rights --

    def test_a_token_may_do_what_its_role_allows(self, cluster: KubernetesClient, namespace: str) -> None:
        token = cluster.add_account(namespace)
        worker = cluster.with_token(token)
        try:
            user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
            found = refused(lambda: worker.core.list_namespaced_pod(namespace))
            assert (found.status, found.reason) == (403, "Forbidden")
            place = f'in API group "" in the namespace "{namespace}"'
            assert found.message == f'pods is forbidden: User "{user}" cannot list resource "pods" {place}'
            assert not self._may(worker, namespace, "list")
            cluster.allow(namespace, PODS)
            wait_for("the role works", lambda: refusal(lambda: worker.core.list_namespaced_pod(namespace)) is None)
            assert self._may(worker, namespace, "list")
            found = refused(lambda: worker.add_pod(namespace))
            assert found.message.startswith(f'pods is forbidden: User "{user}" cannot create resource "pods"')
            found = refused(lambda: worker.core.delete_namespaced_pod("pod", namespace))
            assert found.message.startswith(f'pods "pod" is forbidden: User "{user}" cannot delete resource "pods"')
            assert refused(lambda: worker.core.list_namespaced_pod("default")).status == 403
            assert refused(lambda: worker.core.read_namespaced_pod_log("pod", namespace)).status == 403
            cluster.core.delete_namespaced_service_account(ACCOUNT, namespace)
            dead = until("the token is worth nothing", lambda: self._refused_with(worker, namespace, 401))
            assert (dead.reason, dead.message) == ("Unauthorized", "Unauthorized")
        finally:
            worker.close()

    @staticmethod
    def _may(client: KubernetesClient, namespace: str, verb: str) -> bool:
        asked = {"verb": verb, "resource": "pods", "namespace": namespace}
        answer = client.reviews.create_self_subject_access_review({"spec": {"resourceAttributes": asked}})
        return bool(answer.status.allowed)

    @staticmethod
    def _refused_with(client: KubernetesClient, namespace: str, status: int) -> Refusal | None:
        found = refusal(lambda: client.core.list_namespaced_pod(namespace))
        return found if found is not None and found.status == status else None

    def test_nobody_can_give_more_than_they_have(self, cluster: KubernetesClient, namespace: str) -> None:
        roles = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}
        worker = cluster.with_token(cluster.add_account(namespace))
        try:
            cluster.allow(namespace, PODS, roles)
            body = {"metadata": {"name": "mine"}, "rules": [PODS]}
            wait_for("rights", lambda: refusal(lambda: worker.rbac.create_namespaced_role(namespace, body)) is None)
            more = {"metadata": {"name": "more"}, "rules": [{**PODS, "verbs": ["get", "delete"]}]}
            found = refused(lambda: worker.rbac.create_namespaced_role(namespace, more))
            assert found.status == 403
            assert "is attempting to grant RBAC permissions not currently held" in found.message
            assert found.message.endswith('{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}')
        finally:
            worker.close()

    def test_a_token_secret_of_nobody_goes(self, cluster: KubernetesClient, namespace: str) -> None:
        annotations = {"kubernetes.io/service-account.name": "not-there"}
        secret = {"metadata": {"name": "token", "annotations": annotations}}
        secret["type"] = "kubernetes.io/service-account-token"  # type: ignore[assignment]
        cluster.core.create_namespaced_secret(namespace, secret)
        wait_for("the secret is gone", lambda: refusal(lambda: cluster.core.read_namespaced_secret("token", namespace)))

    def test_an_unknown_token(self, cluster: KubernetesClient) -> None:
        nobody = cluster.with_token("unknown")
        try:
            found = refused(nobody.core.list_namespace)
            assert (found.status, found.reason, found.message) == (401, "Unauthorized", "Unauthorized")
        finally:
            nobody.close()

    # -- quotas --

    def test_a_quota_refuses(self, cluster: KubernetesClient, namespace: str) -> None:
        hard = {"pods": "1", "requests.cpu": "2", "limits.memory": "1Gi"}
        self._set_quota(cluster, namespace, hard)
        found = refused(lambda: cluster.add_pod(namespace))
        assert (found.status, found.reason) == (403, "Forbidden")
        assert found.message == 'pods "pod" is forbidden: failed quota: quota: must specify limits.memory,requests.cpu'
        big: dict[str, Any] = {"requests": {"cpu": "3"}, "limits": {"memory": "2Gi"}}
        found = refused(lambda: cluster.add_pod(namespace, **big))
        assert found.message == (
            'pods "pod" is forbidden: exceeded quota: quota, requested: limits.memory=2Gi,requests.cpu=3, '
            "used: limits.memory=0,requests.cpu=0, limited: limits.memory=1Gi,requests.cpu=2"
        )
        small: dict[str, Any] = {"requests": {"cpu": "500m"}, "limits": {"memory": "512Mi"}}
        cluster.add_pod(namespace, "first", **small)
        used = {"limits.memory": "512Mi", "pods": "1", "requests.cpu": "500m"}
        wait_for("it is counted", lambda: self._quota(cluster, namespace).used == used)
        found = refused(lambda: cluster.add_pod(namespace, **small))
        text = "requested: pods=1, used: pods=1, limited: pods=1"
        assert found.message == f'pods "pod" is forbidden: exceeded quota: quota, {text}'
        cluster.running(namespace, "first")
        cluster.core.delete_namespaced_pod("first", namespace)
        wait_for("there is room", lambda: refusal(lambda: cluster.add_pod(namespace, **small)) is None)

    def _set_quota(self, cluster: KubernetesClient, namespace: str, hard: dict[str, str]) -> None:
        body = {"metadata": {"name": "quota"}, "spec": {"hard": hard}}
        cluster.core.create_namespaced_resource_quota(namespace, body)
        wait_for("the quota counts", lambda: (self._quota(cluster, namespace).used or {}).keys() == hard.keys())

    @staticmethod
    def _quota(cluster: KubernetesClient, namespace: str) -> Any:
        return cluster.core.read_namespaced_resource_quota("quota", namespace).status

    def test_a_limit_range_adds_and_refuses(self, cluster: KubernetesClient, namespace: str) -> None:
        limit = {
            "type": "Container",
            "max": {"memory": "1Gi"},
            "default": {"memory": "256Mi"},
            "defaultRequest": {"cpu": "500m"},
        }
        body = {"metadata": {"name": "limits"}, "spec": {"limits": [limit]}}
        cluster.core.create_namespaced_limit_range(namespace, body)

        def too_much() -> Refusal | None:
            return refusal(lambda: cluster.core.create_namespaced_pod(namespace, big, dry_run="All"))

        big = pod_body("pod", limits={"memory": "2Gi"})
        found = until("the limits count", too_much)
        text = "maximum memory usage per Container is 1Gi, but limit is 2Gi"
        assert (found.status, found.message) == (403, f'pods "pod" is forbidden: {text}')
        resources = cluster.add_pod(namespace).spec.containers[0].resources
        assert resources.requests == {"cpu": "500m", "memory": "256Mi"}
        assert resources.limits == {"memory": "256Mi"}

    # -- deletion --

    def test_a_namespace_goes_with_all_that_is_in_it(self, cluster: KubernetesClient, namespace: str) -> None:
        token = cluster.add_account(namespace)
        cluster.add_pod(namespace)
        cluster.running(namespace)
        left = cluster.core.delete_namespace(namespace, propagation_policy="Background")
        # A v1.Status in the client's model; what came is the namespace.
        assert left is not None
        found = cluster.core.read_namespace(namespace)
        assert found.status.phase == "Terminating"
        assert found.metadata.deletion_timestamp is not None
        refused_ = refused(lambda: cluster.add_pod(namespace, "late"))
        assert refused_.status == 403
        text = f"unable to create new content in namespace {namespace} because it is being terminated"
        assert refused_.message == f'pods "late" is forbidden: {text}'
        wait_for("the namespace is gone", lambda: cluster.namespace_gone(namespace))
        worker = cluster.with_token(token)
        assert refused(lambda: worker.core.list_namespaced_pod(namespace)).status == 401
        worker.close()

    def test_a_finalizer_holds_a_namespace(self, cluster: KubernetesClient, namespace: str) -> None:
        body = {"metadata": {"name": "held", "finalizers": [FINALIZER]}}
        cluster.core.create_namespaced_config_map(namespace, body)
        cluster.core.delete_namespace(namespace)

        def conditions() -> dict[str, Any]:
            found = cluster.core.read_namespace(namespace).status.conditions or []
            return {item.type: item for item in found if item.status == "True"}

        held = until("it says what holds it", lambda: conditions().get("NamespaceFinalizersRemaining"))
        assert held.reason == "SomeFinalizersRemain"
        text = f"Some content in the namespace has finalizers remaining: {FINALIZER} in 1 resource instances"
        assert held.message == text
        assert conditions()["NamespaceContentRemaining"].message == (
            "Some resources are remaining: configmaps. has 1 resource instances"
        )
        steps = [{"op": "remove", "path": "/metadata/finalizers"}]
        cluster.core.patch_namespaced_config_map("held", namespace, steps)
        wait_for("the namespace is gone", lambda: cluster.namespace_gone(namespace))

    def test_a_deletion_means_one_object(self, cluster: KubernetesClient, namespace: str) -> None:
        cluster.add_pod(namespace)
        path = f"/api/v1/namespaces/{namespace}/pods/pod"
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "another"}}
        found = refused(lambda: cluster.call("DELETE", path, body=options))
        assert (found.status, found.reason) == (409, "Conflict")
        assert refusal(lambda: cluster.pod(namespace)) is None

    def test_a_deletion_of_many(self, cluster: KubernetesClient, namespace: str) -> None:
        for name in ("one", "two"):
            cluster.add_pod(namespace, name, labels={"name": name}, selector={"no": "such"})
        cluster.core.delete_collection_namespaced_pod(namespace, label_selector="name=one")

        def names() -> list[str]:
            return [item.metadata.name for item in cluster.core.list_namespaced_pod(namespace).items]

        wait_for("one is gone", lambda: names() == ["two"])

    # -- OpenShift --

    def test_projects(self, place: Place, cluster: KubernetesClient) -> None:
        if not place.openshift:
            pytest.skip("no OpenShift here")
        name = f"project-{next(_NUMBERS)}"
        projects = "/apis/project.openshift.io/v1/projects"
        requests = "/apis/project.openshift.io/v1/projectrequests"
        developer = KubernetesClient.of_context(place.kubeconfig, "developer")
        nobody = KubernetesClient.of_context(place.kubeconfig, "nobody")
        try:
            body = {
                "kind": "ProjectRequest",
                "apiVersion": "project.openshift.io/v1",
                "metadata": {"name": name, "labels": {"a": "b"}},
            }
            assert refused(lambda: nobody.call("POST", requests, body=body)).status == 403
            made = developer.call("POST", requests, body=body)
            assert (made["kind"], made["metadata"]["name"]) == ("Project", name)
            assert made["metadata"]["annotations"]["openshift.io/requester"] == "developer"
            assert "labels" not in made["metadata"]
            assert refused(lambda: developer.call("POST", requests, body=body)).status == 409

            def seen() -> list[str]:
                return [item["metadata"]["name"] for item in developer.call("GET", projects)["items"]]

            wait_for("the project is theirs", lambda: name in seen())
            assert "default" not in seen()
            assert nobody.call("GET", projects)["items"] == []
            assert refused(developer.core.list_namespace).status == 403
            wait_for("they may work in it", lambda: refusal(lambda: developer.add_account(name)) is None)
            binding = {
                "kind": "RoleBinding",
                "apiVersion": "authorization.openshift.io/v1",
                "metadata": {"name": "admin-0"},
                "roleRef": {"name": "admin"},
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": name}],
            }
            path = f"/apis/authorization.openshift.io/v1/namespaces/{name}/rolebindings"
            bound = developer.call("POST", path, body=binding)
            assert bound["userNames"] == [f"system:serviceaccount:{name}:{ACCOUNT}"]
            developer.call("DELETE", f"{projects}/{name}")
            wait_for("the project is gone", lambda: cluster.namespace_gone(name))
        finally:
            developer.close()
            nobody.close()
