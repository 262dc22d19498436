# SPDX-License-Identifier: Apache-2.0
"""The official client uses the simulator as a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulators.kubernetes import KubernetesSettings, KubernetesSimulator
from tests.support.kubernetes_api_contract import KubernetesApiContract
from tests.support.kubernetes_contract import Place
from tests.support.kubernetes_rights_contract import KubernetesRightsContract


class TestKubernetesSimulator(KubernetesApiContract, KubernetesRightsContract):
    """It says what the real one says."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[Place]:
        with KubernetesSimulator(KubernetesSettings(openshift=True)) as simulator:

            def expire() -> None:
                with simulator.cloud() as cluster:
                    cluster.store.forget()

            yield Place(simulator.write_kubeconfig(tmp_path / "kubeconfig"), expire)
            assert simulator.application.bugs == []
