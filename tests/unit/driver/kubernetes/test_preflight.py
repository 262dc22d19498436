# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` says of a cluster, on a simulated one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodepool.driver.framework.checks import CheckResult
from nodepool.driver.kubernetes import KubernetesDriver
from nodepool.driver.kubernetes.client import REVIEWS
from nodepool.driver.kubernetes.preflight import RBAC_GROUP, rights, told_rights
from nodepool.driver.openshift import OpenShiftDriver
from nodepool.driver.openshift.adapter import of_pods
from nodepool.driver.openshiftpods import OpenShiftPodsDriver
from simulators.kubernetes import KubernetesSettings, KubernetesSimulator
from tests.support.ports import free_ports
from tests.support.provider_sections import load_section
from tests.unit.driver.kubernetes.stand_in import StandIn

DRIVERS: dict[str, Any] = {
    "kubernetes": KubernetesDriver,
    "openshift": OpenShiftDriver,
    "openshiftpods": OpenShiftPodsDriver,
}


@pytest.fixture
def simulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesSimulator]:
    with KubernetesSimulator(KubernetesSettings(openshift=True)) as made:
        monkeypatch.setenv("KUBECONFIG", str(made.write_kubeconfig(tmp_path / "kubeconfig")))
        yield made


def results(driver: str, context: str, **pool: Any) -> list[CheckResult]:
    label = {"name": "pod", "image": "debian", **({} if driver == "openshiftpods" else {"type": "pod"})}
    section = {"name": "c", "driver": driver, "context": context}
    section["pools"] = [{"name": "default", "labels": [label], **pool}]  # type: ignore[assignment]
    made = DRIVERS[driver]()
    adapter = made.getAdapter(load_section(made, section))
    try:
        return list(adapter.preflight())
    finally:
        adapter.stop()


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_all_is_well(simulator: KubernetesSimulator, driver: str) -> None:
    """KU-1, KU-3: a line says that the cluster answers, and one that no right is missing."""
    found = results(driver, "admin")
    assert [result.status for result in found] == ["ok"] * len(found)
    assert simulator.url in found[0].text


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_rights_that_are_missing(simulator: KubernetesSimulator, driver: str) -> None:
    """KU-3: each by its name, with a remedy, a line for each resource."""
    first, *missing = results(driver, "nobody")
    assert first.ok
    assert missing
    assert all(result.status == "failed" and result.text.startswith("we may not ") for result in missing)
    assert all(result.remedy for result in missing)
    resources = [result.text.rpartition(" (")[0] or result.text for result in missing]
    resources = [text.rpartition(" ")[2] for text in resources]
    assert len(set(resources)) == len(resources)


def test_verbs_of_a_resource() -> None:
    """KU-3."""
    wanted = [*rights("pods", "create list"), *rights("roles", "create", RBAC_GROUP), *rights("pods", "watch")]
    assert [result.text for result in told_rights("rights", wanted, "give them")] == [
        "we may not create, list, watch pods",
        "we may not create roles (rbac.authorization.k8s.io)",
    ]


def test_cluster_that_does_not_answer(
    simulator: KubernetesSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KU-1: address, cause and remedy, without the names of classes."""
    there = (tmp_path / "kubeconfig").read_text()
    (tmp_path / "kubeconfig").write_text(there.replace(simulator.url, f"http://127.0.0.1:{free_ports(1)[0]}"))
    (found,) = results("kubernetes", "admin")
    assert found.status == "failed"
    assert re.fullmatch(r"GET /version: no answer from 127\.0\.0\.1:\d+: connection refused", found.text)
    assert found.remedy


def test_self_provisioner(simulator: KubernetesSimulator) -> None:
    """OS-1: who may ask for projects has all that is needed."""
    assert all(result.status == "ok" for result in results("openshift", "developer"))


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_no_cluster(simulator: KubernetesSimulator, driver: str) -> None:
    """KU-1: a context that does not exist is the only line."""
    (found,) = results(driver, "other")
    assert found.status == "failed"
    assert "'other'" in found.text


def test_project_that_does_not_exist(simulator: KubernetesSimulator) -> None:
    """OS-6: the rights are there for it, the project is not."""
    found = results("openshiftpods", "admin", name="nowhere")
    assert [result.status for result in found] == ["ok", "failed"]
    assert "nowhere" in found[1].text
    assert found[1].remedy


@pytest.mark.parametrize(("token", "told"), [(None, True), ("secret", False)], ids=["certificate", "token"])
def test_login_that_jobs_cannot_use(token: str | None, told: bool) -> None:
    """OS-6: Zuul gets the token of the launcher; with a client certificate there is none."""
    client = StandIn()
    access = SimpleNamespace(host="https://cluster", bearer_token=lambda: token)
    client.connection = SimpleNamespace(access=lambda: access)  # type: ignore[assignment]
    client.answers["POST", REVIEWS] = {"status": {"allowed": True}}
    client.lists.append(([], "1"))
    pool = SimpleNamespace(name="project", max_servers=2)
    config = SimpleNamespace(name="c", context="admin", pools={"project": pool})
    found = [result for result in of_pods(config, client) if "certificate" in result.text]
    assert [(result.ok, bool(result.remedy)) for result in found] == [(False, True)] * told
