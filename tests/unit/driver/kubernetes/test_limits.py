# SPDX-License-Identifier: Apache-2.0
"""What a cluster, or a namespace, has room for."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nodepool.driver.kubernetes import objects
from nodepool.model.quota import QuotaInformation


def pod(name: str = "p", phase: str = "Running", node: str = "one", **requests: str) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": requests}}
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": phase},
    }


def node(name: str = "one", ready: str = "True", **spec: Any) -> dict[str, Any]:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "10G", "nvidia.com/gpu": "2"}
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": allocatable, "conditions": conditions}}


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}, "status": {"hard": hard, "used": used or {}}}


def compute(found: QuotaInformation) -> dict[str, float]:
    return {name: amount for name, amount in found.quota["compute"].items() if math.isfinite(amount)}


@pytest.mark.parametrize(
    ("text", "amount"), [("500m", 0.5), ("2", 2), (3, 3), ("1Ki", 1024), ("2e3", 2000), ("1.5G", 1.5e9)]
)
def test_quantities(text: Any, amount: float) -> None:
    """KU-6: as Kubernetes writes them."""
    assert objects.amount_of(text) == amount


def test_requests_of_a_pod() -> None:
    """KU-6: containers together; those that run before count where they need more; what is no quantity does not."""
    made = pod(cpu="500m", memory="64Mi")
    made["spec"]["containers"].append({"name": "d", "resources": {"requests": {"cpu": "1"}}})
    made["spec"]["containers"].append({"name": "e", "resources": {"requests": {"memory": "much"}}})
    made["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "1", "memory": "128Mi"}}}]
    assert objects.requests_of(made) == {"instances": 1, "cores": 1.5, "ram": 128}


def test_room_of_a_cluster() -> None:
    """KU-13: what its nodes can allocate, without what others request there."""
    nodes = [node(), node("two")]
    pods = [pod(cpu="1", memory="1Gi"), pod(node="two", cpu="500m"), pod(node="three", cpu="4")]
    found = compute(objects.of_cluster(nodes, pods, lambda _: {}))
    assert found == {"cores": 6.5, "ram": 15 * 1024, "instances": 218, "ephemeral-storage": 20000, "nvidia.com/gpu": 4}


def test_our_own_pods_count_by_themselves() -> None:
    """KU-13: the framework counts what a label says; only what a pod requests beyond that is used by others."""
    ours = pod("ours", cpu="2", memory="1Gi")
    found = compute(objects.of_cluster([node()], [ours], lambda _: {"instances": 1, "cores": 1, "ram": 1024}))
    assert (found["cores"], found["ram"], found["instances"]) == (3, 8 * 1024, 110)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended(phase: str) -> None:
    """KU-13: they use nothing."""
    assert compute(objects.of_cluster([node()], [pod(phase=phase, cpu="4")], lambda _: {}))["cores"] == 4


@pytest.mark.parametrize(
    "other",
    [
        node("two", "False"),
        node("two", unschedulable=True),
        node("two", taints=[{"key": "k", "effect": "NoSchedule"}]),
    ],
)
def test_nodes_that_take_no_pods(other: dict[str, Any]) -> None:
    """KU-13: neither their room counts, nor what runs there."""
    found = compute(objects.of_cluster([node(), other], [pod(node="two", cpu="3")], lambda _: {}))
    assert found["cores"] == 4


def test_taint_that_only_advises() -> None:
    """KU-13: pods may go there."""
    advised = node("two", taints=[{"key": "k", "effect": "PreferNoSchedule"}])
    assert compute(objects.of_cluster([advised], [], lambda _: {}))["cores"] == 4


def test_quota_of_a_namespace() -> None:
    """KU-13: what it leaves us: the limit without what others use; pods of ours are in what is used."""
    found = objects.of_quotas(
        [quota({"pods": "10", "requests.cpu": "8", "memory": "4Gi"}, {"pods": "5", "requests.cpu": "3"})],
        [pod(cpu="1"), pod("q", cpu="1"), pod("ended", "Failed", cpu="1")],
    )
    assert compute(found) == {"instances": 7, "cores": 7, "ram": 4096}


def test_least_of_several_quotas() -> None:
    """KU-13: each holds by itself."""
    found = objects.of_quotas([quota({"pods": "10"}), quota({"count/pods": "4", "limits.cpu": "1"})], [])
    assert compute(found) == {"instances": 4}


def test_quota_with_a_scope() -> None:
    """KU-13: it may not concern our pods; if it does, a launch is refused and waits."""
    assert compute(objects.of_quotas([quota({"pods": "1"}, scopes=["BestEffort"])], [])) == {}


def test_several_namespaces() -> None:
    """KU-13: together; what one of them does not limit is not limited."""
    one = objects.of_quotas([quota({"pods": "10", "cpu": "4"})], [])
    two = objects.of_quotas([quota({"pods": "5"})], [])
    assert compute(objects.together([one, two])) == {"instances": 15}
    assert compute(objects.together([])) == {}
