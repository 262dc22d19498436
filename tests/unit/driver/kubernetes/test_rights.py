# SPDX-License-Identifier: Apache-2.0
"""Launches and deletions by an account that has the documented rights, and no others, on a simulated cluster."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from simulators.kubernetes import KubernetesSimulator
from simulators.kubernetes.kinds import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES
from tests.support.documented_rights import RBAC_GROUP, documented_role
from tests.support.kubernetes_place import PROJECT
from tests.unit.driver.kubernetes.simulated import LOG, creation_of, drive, make_adapter

#: A user of the kubeconfig who has only what everybody has.
USER = "nobody"
pytestmark = pytest.mark.usefixtures("kubeconfig")


def bind(simulator: KubernetesSimulator, role: str, namespace: str = "") -> None:
    """Gives the user a cluster role, everywhere or in a namespace."""
    binding = {
        "metadata": {"name": f"{role}-of-{USER}", **({"namespace": namespace} if namespace else {})},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "apiGroup": RBAC_GROUP, "name": USER}],
    }
    with simulator.cloud() as cluster:
        cluster.store.add(BINDINGS if namespace else CLUSTER_BINDINGS, binding)


def give(simulator: KubernetesSimulator, role: dict[str, Any]) -> None:
    """Gives the user a role that is made for it, everywhere."""
    with simulator.cloud() as cluster:
        cluster.store.add(CLUSTER_ROLES, {"metadata": role["metadata"], "rules": role["rules"]})
    bind(simulator, role["metadata"]["name"])


def works(driver: str, *labels: str, **keys: Any) -> None:
    """A node of each label is made, seen by the sweep and deleted; limits are read; ``nodepool check`` is content."""
    adapter = make_adapter(driver, context=USER, **keys)
    try:
        failed = [result for result in adapter.preflight() if not result.ok]
        assert not failed, failed
        adapter.getQuotaLimits()
        for number, label in enumerate(labels, 1):
            machine = creation_of(adapter, driver, f"000000000{number}", label)
            assert drive(machine).connection_port["token"]
            assert machine.external_id in [resource.id for resource in adapter.listResources()]
            drive(adapter.getDeleteStateMachine(machine.external_id, LOG))
    finally:
        adapter.stop()


@pytest.mark.parametrize("accounts", [True, False])
@pytest.mark.parametrize(
    ("keys", "rights"),
    [
        ({}, {}),
        ({}, {"shared_roles": False}),
        ({"shared-roles": True}, {}),
        ({"shared-roles": False}, {"shared_roles": False}),
        ({"cluster-room": True}, {"cluster_room": True}),
    ],
    ids=["as it is", "own roles because there is no right", "shared roles", "own roles", "cluster-room"],
)
def test_kubernetes(
    simulator: KubernetesSimulator, keys: dict[str, Any], rights: dict[str, bool], accounts: bool
) -> None:
    """KU-3: the role of the documentation, as it is for these keys, is enough."""
    give(simulator, documented_role(**rights, accounts=accounts))
    works("kubernetes", "pod", "space", **keys)


def test_own_roles_for_want_of_a_right_are_no_failure(simulator: KubernetesSimulator) -> None:
    """KU-3: ``nodepool check`` says what it costs."""
    give(simulator, documented_role(shared_roles=False))
    adapter = make_adapter("kubernetes", context=USER)
    try:
        found = list(adapter.preflight())
    finally:
        adapter.stop()
    assert all(result.ok for result in found)
    assert any("clusterroles" in result.text and result.remedy for result in found)


def test_each_rule_is_needed(simulator: KubernetesSimulator) -> None:
    """KU-3: ``nodepool check`` misses each rule that is taken out."""
    role = documented_role()
    give(simulator, {**role, "rules": []})
    adapter = make_adapter("kubernetes", context=USER)
    try:
        for left_out in range(len(role["rules"])):
            rules = [rule for number, rule in enumerate(role["rules"]) if number != left_out]
            with simulator.cloud() as cluster:
                found = cluster.store.get(CLUSTER_ROLES, "", role["metadata"]["name"])
                cluster.store.change(CLUSTER_ROLES, found, functools.partial(dict.update, rules=rules))
            assert any(not result.ok for result in adapter.preflight()), role["rules"][left_out]
    finally:
        adapter.stop()


def test_accounts_that_may_not_be_watched_are_no_failure(simulator: KubernetesSimulator) -> None:
    """KU-2: ``nodepool check`` says what it costs."""
    give(simulator, documented_role(accounts=False))
    adapter = make_adapter("kubernetes", context=USER)
    try:
        found = list(adapter.preflight())
    finally:
        adapter.stop()
    assert all(result.ok for result in found)
    assert any("serviceaccounts" in result.text and result.remedy for result in found)


@pytest.mark.parametrize("default", [False, True])
def test_openshift(simulator: KubernetesSimulator, default: bool) -> None:
    """OS-1: the role ``self-provisioner``, and what every user has."""
    bind(simulator, "self-provisioner")
    works("openshift", "pod", "space", **{"default-account": default})


def test_openshiftpods(simulator: KubernetesSimulator) -> None:
    """OS-6: the role ``edit`` in the project."""
    bind(simulator, "edit", PROJECT)
    works("openshiftpods", "pod")
