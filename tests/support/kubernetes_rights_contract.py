# SPDX-License-Identifier: Apache-2.0
"""What a cluster refuses: rights, quotas, and projects of OpenShift. See `tests.support.kubernetes_api_contract`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.kubernetes_client import ACCOUNT, KubernetesClient, Refusal, pod_body, refusal
from tests.support.kubernetes_contract import KubernetesContract, Place, new_name, refused, until
from tests.support.wait import wait_for

PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


class KubernetesRightsContract(KubernetesContract):
    """See `KubernetesContract`."""

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

    # -- OpenShift --

    def test_projects(self, place: Place, cluster: KubernetesClient) -> None:
        if not place.openshift:
            pytest.skip("no OpenShift here")
        name = new_name("project")
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
                # An empty list of projects may have null.
                return [item["metadata"]["name"] for item in developer.call("GET", projects)["items"] or ()]

            wait_for("the project is theirs", lambda: name in seen())
            assert "default" not in seen()
            assert not nobody.call("GET", projects)["items"]
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
