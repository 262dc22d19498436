# SPDX-License-Identifier: Apache-2.0
"""`OpenShiftPodsAdapter`: pods in projects that are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.driver.kubernetes.adapter import KubernetesAdapter
from nodepool.driver.openshift import preflight
from nodepool.driver.openshiftpods.cloud import PodCloud
from nodepool.driver.openshiftpods.create import PodCreation

if TYPE_CHECKING:
    from nodepool.driver.framework.check_result import CheckResult


class OpenShiftPodsAdapter(KubernetesAdapter):
    """One cluster; a pool is a project."""

    creation_class = PodCreation

    def make_cloud(self) -> PodCloud:
        return PodCloud(self.config.name, self.client, self.config.pools)

    def preflight(self) -> Iterator[CheckResult]:
        return preflight.of_pods(self.config, self.client)
