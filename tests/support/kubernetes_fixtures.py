# SPDX-License-Identifier: Apache-2.0
"""Fixtures with a simulated cluster, and launchers that use it, for the conftest or module of tests that want them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.kubernetes import KubernetesSettings, KubernetesSimulator
from tests.support.kubernetes_place import DRIVERS, PROJECT, PodPlace, SimulatedCluster, provider_section
from tests.support.section_provider import SectionProvider
from tests.support.workplace import Workplace


@pytest.fixture
def simulator() -> Iterator[KubernetesSimulator]:
    with KubernetesSimulator(KubernetesSettings(openshift=True)) as running:
        with running.cloud() as cluster:
            cluster.add_namespace(PROJECT)
        yield running
        assert running.application.bugs == []


@pytest.fixture
def kubeconfig(simulator: KubernetesSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = simulator.write_kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(file))
    return file


@pytest.fixture
def cluster(simulator: KubernetesSimulator) -> SimulatedCluster:
    return SimulatedCluster(simulator)


@pytest.fixture
def driver(request: pytest.FixtureRequest) -> str:
    """The driver under test; Kubernetes, unless the test names others."""
    name: str = getattr(request, "param", "kubernetes")
    return name


@pytest.fixture
def place(workplace: Workplace, cluster: SimulatedCluster, kubeconfig: Path, driver: str) -> PodPlace:
    """Change ``provider`` and call `PodPlace.launch`."""
    assert kubeconfig.exists()
    return PodPlace(workplace, cluster, SectionProvider(provider_section(driver, DRIVERS[driver])))
