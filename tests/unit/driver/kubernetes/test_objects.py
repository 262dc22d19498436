# SPDX-License-Identifier: Apache-2.0
"""Objects of a node."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.kubernetes import KubernetesDriver, objects
from nodepool.driver.kubernetes.config import KubernetesProviderConfig, PodLabel
from nodepool.logconfig import ContextLogger
from tests.support.provider_sections import load_section

LOG = ContextLogger(logging.getLogger("test"))
METADATA = {"nodepool_node_id": "7", "nodepool_pool_name": "main", "nodepool_provider_name": "cluster"}


def label_of(pool: dict[str, Any] | None = None, **keys: Any) -> PodLabel:
    """A label as it is loaded."""
    label = {"name": "pod", "type": "pod", **({} if "spec" in keys else {"image": "debian"}), **keys}
    pools = [{"name": "main", "labels": [label], **(pool or {})}]
    section = {"name": "cluster", "driver": "kubernetes", "pools": pools}
    provider: KubernetesProviderConfig = load_section(KubernetesDriver(), section)
    return provider.pools["main"].labels["pod"]


def test_pod() -> None:
    """KU-4: one container, named like the label, whose loop is one argument; it is not started again."""
    made = objects.pod("pod", label_of(privileged=True), {"a": "b"})
    spec = made["spec"]
    (container,) = spec["containers"]
    assert spec["restartPolicy"] == "Never"
    assert container["name"] == "pod"
    assert container["command"] == ["/bin/sh", "-c"]
    assert container["args"] == ["while true; do sleep 30; done;"]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["securityContext"] == {"privileged": True}
    assert set(spec) == {"containers", "restartPolicy"}
    assert made["metadata"]["labels"] == {"a": "b"}


def test_spec_is_used_as_it_is() -> None:
    """KU-5: with its name, labels and annotations, and nothing added."""
    spec = {"containers": [{"name": "other", "image": "x"}]}
    label = label_of(spec=spec, annotations={"note": "1"})
    made = objects.pod("pod", label, {})
    assert made["spec"] == spec
    assert made["metadata"] == {"name": "pod", "labels": {}, "annotations": {"note": "1"}}


def test_quantities() -> None:
    """KU-6: cores, MiB and MB; a GPU as a text with two decimals; what is not set is left out."""
    keys: dict[str, Any] = {
        "cpu": 2,
        "memory": 512,
        "storage": 10,
        "gpu": 0.5,
        "gpu-resource": "nvidia.com/gpu",
        "cpu-limit": 4,
    }
    resources = objects.pod("pod", label_of(**keys), {})["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {
        "cpu": "2",
        "memory": "512Mi",
        "ephemeral-storage": "10M",
        "nvidia.com/gpu": "0.50",
    }
    assert resources["limits"]["cpu"] == "4"
    assert "resources" not in objects.pod("pod", label_of(gpu=1), {})["spec"]["containers"][0]


def test_labels_of_a_node() -> None:
    """KU-7: the label's, then dynamic ones, then ours; a dynamic value is made one that a label may have."""
    label = label_of(labels={"a": "1", "nodepool_node_id": "no"}, **{"dynamic-labels": {"t": "{request.tenant_name}"}})
    request: Any = SimpleNamespace(tenant_name="/a tenant!")
    found = objects.labels_of(label, METADATA, request, LOG)
    assert found == {"a": "1", "t": "a_tenant", **METADATA, "nodepool_node_label": "pod"}


def test_dynamic_label_that_cannot_be_formatted() -> None:
    """KU-7: it is left out; the node is made all the same."""
    label = label_of(**{"dynamic-labels": {"t": "{request.nothing}"}})
    assert "t" not in objects.labels_of(label, METADATA, None, LOG)


@pytest.mark.parametrize(("is_pod", "name"), [(True, "zuul-restricted"), (False, "zuul")])
def test_roles(is_pod: bool, name: str) -> None:
    """KU-3: rules name existing resources, in the groups that have them."""
    made = objects.role(METADATA, is_pod)
    rules = {(rule["apiGroups"][0], resource) for rule in made["rules"] for resource in rule["resources"]}
    assert made["metadata"]["name"] == name
    assert ("", "pods/log") in rules
    assert not any(resource == "pods/logs" for _, resource in rules)
    assert (("apps", "deployments") in rules) is not is_pod
    assert (("batch", "jobs") in rules) is not is_pod
    binding = objects.role_binding("main-7", METADATA, is_pod)
    assert binding["roleRef"]["name"] == name
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "zuul-worker", "namespace": "main-7"}]


def test_token_is_asked_for() -> None:
    """KU-2, OS-2: a secret is made for the token: clusters since 1.24 make none by themselves."""
    made = objects.token_secret(METADATA)
    assert made["type"] == "kubernetes.io/service-account-token"
    assert made["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "zuul-worker"}
