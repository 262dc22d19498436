# SPDX-License-Identifier: Apache-2.0
"""`OpenShiftAdapter`: that of Kubernetes, with projects for namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.driver.kubernetes.adapter import KubernetesAdapter
from nodepool.driver.openshift import preflight
from nodepool.driver.openshift.cloud import ProjectCloud
from nodepool.driver.openshift.create import ProjectCreation

if TYPE_CHECKING:
    from nodepool.driver.framework.check_result import CheckResult


class OpenShiftAdapter(KubernetesAdapter):
    """One cluster."""

    cloud_class = ProjectCloud
    creation_class = ProjectCreation

    def preflight(self) -> Iterator[CheckResult]:
        return preflight.of_openshift(self.config, self.client)
