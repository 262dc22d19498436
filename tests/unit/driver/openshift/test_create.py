# SPDX-License-Identifier: Apache-2.0
"""What is made in the project of a node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from nodepool.driver.openshift import OpenShiftDriver
from nodepool.driver.openshift.adapter import OpenShiftAdapter
from nodepool.driver.statemachine import CreationKey
from tests.support.provider_sections import load_section
from tests.unit.driver.kubernetes.simulated import LOG
from tests.unit.driver.kubernetes.stand_in import StandIn

KEY = CreationKey("os", "7", 1)
METADATA = {"nodepool_node_id": "7", "nodepool_pool_name": "main", "nodepool_provider_name": "os"}


@pytest.fixture
def made(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Objects by their kinds, in the order of their calls."""
    keys, label = request.param
    section = {"name": "os", "driver": "openshift", "context": "c", **keys}
    section["pools"] = [{"name": "main", "labels": [{"name": "pod", **label}]}]
    client = StandIn()
    adapter = OpenShiftAdapter(load_section(OpenShiftDriver(), section), client)
    settings = adapter.config.pools["main"].labels["pod"]
    adapter.getCreateStateMachine("", settings, None, METADATA, None, None, LOG).create(KEY)
    yield {path.rpartition("/")[2]: body for method, path, body in client.calls if method == "POST"}
    adapter.stop()


POD = {"type": "pod", "image": "fedora"}
SPEC = {"type": "pod", "spec": {"containers": []}}


@pytest.mark.parametrize(
    "made", [({}, POD), ({"default-account": True}, SPEC)], indirect=True, ids=["as released", "with a spec"]
)
def test_account_of_its_own(made: dict[str, Any]) -> None:
    """OS-1 to OS-3, KU-5: the account ``zuul-worker`` is administrator; a spec is used as it is."""
    assert list(made) == ["projectrequests", "serviceaccounts", "secrets", "rolebindings", "pods"]
    assert made["rolebindings"]["subjects"] == [
        {"kind": "ServiceAccount", "name": "zuul-worker", "namespace": "main-7"}
    ]
    assert made["rolebindings"]["roleRef"] == {"name": "admin"}
    assert "automountServiceAccountToken" not in made["pods"]["spec"]


@pytest.mark.parametrize("made", [({"default-account": True}, {"type": "project"})], indirect=True, ids=["project"])
def test_account_of_a_project(made: dict[str, Any]) -> None:
    """OS-3: what a job runs in its project does not become administrator by itself."""
    assert list(made) == ["projectrequests", "serviceaccounts", "secrets", "rolebindings"]
    assert made["rolebindings"]["subjects"][0]["name"] == "zuul-worker"


@pytest.mark.parametrize("made", [({"default-account": True}, POD)], indirect=True, ids=["pod"])
def test_account_of_the_cluster(made: dict[str, Any]) -> None:
    """OS-3: one call less; the pod itself has no token of the administrator."""
    assert list(made) == ["projectrequests", "rolebindings", "pods", "secrets"]
    assert made["rolebindings"]["subjects"][0]["name"] == "default"
    assert made["secrets"]["metadata"]["annotations"] == {"kubernetes.io/service-account.name": "default"}
    assert made["pods"]["spec"]["automountServiceAccountToken"] is False
