# SPDX-License-Identifier: Apache-2.0
"""The three drivers on a simulated cluster: what is left of nodes, the documented rights, and ``nodepool check``."""

from __future__ import annotations

import functools
import logging
import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from nodepool.clock import monotonic
from nodepool.driver.kubernetes import KubernetesDriver
from nodepool.driver.kubernetes.adapter import RBAC_GROUP
from nodepool.driver.kubernetes.client import core
from nodepool.driver.kubernetes.connection import ClusterAccess
from nodepool.driver.openshift import OpenShiftDriver
from nodepool.driver.openshiftpods import OpenShiftPodsDriver
from nodepool.driver.statemachine import CreationKey
from nodepool.logconfig import ContextLogger
from simulators.kubernetes import KubernetesSimulator
from simulators.kubernetes.kinds import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES
from tests.support.documented_rights import documented_role
from tests.support.kubernetes_place import DRIVERS, PROJECT, provider_section
from tests.support.provider_sections import load_section
from tests.support.wait import DEADLINE_SECONDS, wait_for

LOG = ContextLogger(logging.getLogger("test"))
CLASSES: dict[str, Any] = {
    "kubernetes": KubernetesDriver,
    "openshift": OpenShiftDriver,
    "openshiftpods": OpenShiftPodsDriver,
}
KEY = CreationKey("cluster-a", "0000000007", 1)
#: A user of the kubeconfig who has only what everybody has.
USER = "nobody"
pytestmark = pytest.mark.usefixtures("kubeconfig")
every_driver = pytest.mark.parametrize("driver", DRIVERS)


@contextmanager
def adapter_of(driver: str, pool: str = "", **keys: Any) -> Iterator[Any]:
    """An adapter of the provider ``cluster-a``. :param keys: more of the provider."""
    made = CLASSES[driver]()
    section = {**provider_section(driver, DRIVERS[driver]), **keys}
    section["pools"][0]["name"] = pool or section["pools"][0]["name"]
    adapter = made.getAdapter(load_section(made, section))
    try:
        yield adapter
    finally:
        adapter.stop()


def creation_of(adapter: Any, driver: str, node_id: str = "0000000007", label: str = "pod") -> Any:
    """A machine that launches a node."""
    pool = PROJECT if driver == "openshiftpods" else "main"
    metadata = {"nodepool_node_id": node_id, "nodepool_pool_name": pool, "nodepool_provider_name": "cluster-a"}
    settings = adapter.config.pools[pool].labels[label]
    return adapter.getCreateStateMachine("", settings, None, metadata, None, None, LOG)


def drive(machine: Any, until: Callable[[Any], bool] = lambda machine: machine.complete) -> Any:
    """Advances it as the framework does, until it is complete, or something else is so; returns what it returned."""
    woken = threading.Event()
    machine.wake = woken.set
    deadline = monotonic() + DEADLINE_SECONDS
    while True:
        woken.clear()
        result = machine.advance()
        if until(machine):
            return result
        assert monotonic() < deadline, f"the machine is {machine.state}, it waits for {machine.waits_for!r}"
        pause = machine.next_advance_seconds
        woken.wait(min(0.2 if pause is None else pause, 0.2))


# -- rights --


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
    with adapter_of(driver, context=USER, **keys) as adapter:
        found = list(adapter.preflight())
        assert [result for result in found if not result.ok] == []
        adapter.getQuotaLimits()
        for number, label in enumerate(labels, 1):
            machine = creation_of(adapter, driver, f"000000000{number}", label)
            assert drive(machine).connection_port["token"]
            assert machine.external_id in [resource.id for resource in adapter.listResources()]
            drive(adapter.getDeleteStateMachine(machine.external_id, LOG))


@pytest.mark.parametrize("keys", [{}, {"shared-roles": False}, {"cluster-room": True}], ids=str)
def test_documented_role(simulator: KubernetesSimulator, keys: dict[str, Any]) -> None:
    """KU-2, KU-3: the role of the documentation, as it is for these keys, is enough."""
    given = {key.replace("-", "_"): value for key, value in keys.items()}
    give(simulator, documented_role(**given, accounts=True))
    works("kubernetes", "pod", "space", **keys)


def test_each_rule_is_needed(simulator: KubernetesSimulator) -> None:
    """KU-3: ``nodepool check`` misses each rule that is taken out."""
    role = documented_role()
    give(simulator, {**role, "rules": []})
    with adapter_of("kubernetes", context=USER) as adapter:
        for left_out in range(len(role["rules"])):
            rules = [rule for number, rule in enumerate(role["rules"]) if number != left_out]
            with simulator.cloud() as cluster:
                found = cluster.store.get(CLUSTER_ROLES, "", role["metadata"]["name"])
                cluster.store.change(CLUSTER_ROLES, found, functools.partial(dict.update, rules=rules))
            assert any(not result.ok for result in adapter.preflight()), role["rules"][left_out]


# -- limits --


@pytest.mark.parametrize(("driver", "keys"), [("kubernetes", {"cluster-room": True}), ("openshiftpods", {})])
def test_limits(simulator: KubernetesSimulator, driver: str, keys: dict[str, Any]) -> None:
    """KU-13: what others use is taken off, what our own nodes use is not."""
    with simulator.cloud() as cluster:
        cluster.add_quota(PROJECT, pods="2")
    with adapter_of(driver, **keys) as adapter:

        def room() -> tuple[float, float]:
            found = adapter.getQuotaLimits().quota["compute"]
            return found["instances"], found["cores"]

        pods, cores = (500, 64) if keys else (2, math.inf)
        assert room() == (pods, cores)
        drive(creation_of(adapter, driver))
        assert room() == (pods, cores)
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1500m"}}}
        foreign = {"metadata": {"name": "foreign"}, "spec": {"containers": [container]}}
        adapter.client.ask("POST", core("pods", PROJECT), foreign)
        # It uses room of the cluster once it has a node.
        wait_for("it is counted", lambda: room() == (pods - 1, cores - 1.5))


def test_limits_of_other_projects(simulator: KubernetesSimulator) -> None:
    """OS-6: a project whose quotas may not be read, or that has none, has no limit, and so the provider has none."""
    bind(simulator, "edit", PROJECT)
    with simulator.cloud() as cluster:
        cluster.add_quota(PROJECT, pods="2")
    section = provider_section("openshiftpods", USER)
    made = OpenShiftPodsDriver()
    other = {**section["pools"][0], "name": "missing"}
    for pools, pods in ((section["pools"], 2), ([*section["pools"], other], math.inf)):
        adapter = made.getAdapter(load_section(made, {**section, "pools": pools}))
        assert adapter.getQuotaLimits().quota["compute"]["instances"] == pods
        adapter.stop()


# -- nodepool check --


@every_driver
def test_check(simulator: KubernetesSimulator, driver: str) -> None:
    """KU-1, KU-3, OS-1: the cluster answers; each missing right by its name, with a remedy, a line for a resource."""
    for context in {"admin", DRIVERS[driver]}:
        with adapter_of(driver, context=context) as adapter:
            found = list(adapter.preflight())
        assert [result.status for result in found] == ["ok"] * len(found)
        assert simulator.url in found[0].text
    with adapter_of(driver, context=USER) as adapter:
        first, *missing = adapter.preflight()
    assert first.ok
    assert missing
    assert all(result.status == "failed" and result.text.startswith("we may not ") for result in missing)
    assert all(result.remedy for result in missing)
    resources = [re.sub(r" \(.*", "", result.text).rpartition(" ")[2] for result in missing]
    assert len(set(resources)) == len(resources)
    with adapter_of(driver, context="other") as adapter:
        (only,) = adapter.preflight()
    assert only.status == "failed"
    assert "'other'" in only.text


@pytest.mark.parametrize(("token", "noted"), [(None, True), ("secret", False)], ids=["certificate", "token"])
def test_login_that_jobs_cannot_use(monkeypatch: pytest.MonkeyPatch, token: str | None, noted: bool) -> None:
    """OS-6: Zuul gets the token of the launcher; with a client certificate there is none."""
    monkeypatch.setattr(ClusterAccess, "bearer_token", lambda _: token)
    with adapter_of("openshiftpods") as adapter:
        found = [result for result in adapter.preflight() if "certificate" in result.text]
    assert [(result.ok, bool(result.remedy)) for result in found] == [(False, True)] * noted
