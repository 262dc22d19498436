# SPDX-License-Identifier: Apache-2.0
"""What drivers rely on in a cluster's API: objects, lists, watches and deletions, tested with the official client.

The same tests run against the simulator (``tests/integration/test_simulators.py``) and against a real control
plane (``tests/functional/kubernetes/test_api.py``): what the simulator says is what the real one says.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.support.kubernetes_client import KubernetesClient, pod_body, refusal
from tests.support.kubernetes_contract import KubernetesContract, Place, refused, until
from tests.support.wait import wait_for

FINALIZER = "example.org/hold"


class KubernetesApiContract(KubernetesContract):
    """See `KubernetesContract`."""

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
            # The official client calls the field `continue` so.
            token = page.metadata._continue if hasattr(page.metadata, "_continue") else page.metadata.var_continue  # noqa: SLF001
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
