# SPDX-License-Identifier: Apache-2.0
"""The real control plane says what the simulator says."""

from __future__ import annotations

import pytest

from tests.support.kubernetes_api_contract import KubernetesApiContract
from tests.support.kubernetes_client import KubernetesClient
from tests.support.kubernetes_contract import Place
from tests.support.kubernetes_rig import KubernetesRig
from tests.support.kubernetes_rights_contract import KubernetesRightsContract
from tests.support.wait import wait_for


class TestControlPlane(KubernetesApiContract, KubernetesRightsContract):
    """A version in which watches cannot begin any more is one from before a restart of the API server."""

    @pytest.fixture
    def place(self, rig: KubernetesRig) -> Place:
        def expire() -> None:
            rig.kill_api_server()
            rig.start_api_server()

        return Place(rig.kubeconfig, expire)

    def wait_filled(self, cluster: KubernetesClient, namespace: str) -> None:
        """A controller adds the certificate of the cluster, and a watch of configuration maps has it."""
        wait_for("its certificate", lambda: cluster.core.list_namespaced_config_map(namespace).items)
