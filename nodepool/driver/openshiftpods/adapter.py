# SPDX-License-Identifier: Apache-2.0
"""`OpenShiftPodsAdapter`: pods in projects that are there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.kubernetes import api, limits
from nodepool.driver.kubernetes.adapter import KubernetesAdapter
from nodepool.driver.openshift import cluster_quotas, preflight
from nodepool.driver.openshiftpods.cloud import PodCloud
from nodepool.driver.openshiftpods.create import PodCreation
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.framework.check_result import CheckResult

log = logging.getLogger("nodepool.driver.openshiftpods.Adapter")


class OpenShiftPodsAdapter(KubernetesAdapter):
    """One cluster; a pool is a project."""

    creation_class = PodCreation

    def make_cloud(self) -> PodCloud:
        return PodCloud(self.config.name, self.client, self.config.pools)

    def getQuotaLimits(self) -> QuotaInformation:
        """What the quotas of the projects leave, where the account may read them; all pools together."""
        own: dict[str, QuotaInformation] = {}
        shared: dict[str, list[api.Object]] = {}
        counted: dict[str, limits.Amounts] = {}
        for project in self.config.pools:
            quotas = self._quotas_of(project)
            shared[project] = cluster_quotas.applied(self.client, project)
            pods = self._pods_of(project) if quotas or shared[project] else []
            own[project] = limits.of_quotas(quotas, pods)
            counted[project] = limits.requests_of_all(pods)
        return cluster_quotas.together(own, shared, counted)

    def _quotas_of(self, project: str) -> list[api.Object]:
        return self._listed("resourcequotas", project)

    def _pods_of(self, project: str) -> list[api.Object]:
        return self._listed("pods", project, self.cloud.selector)

    def _listed(self, kind: str, project: str, selector: str = "") -> list[api.Object]:
        try:
            found, _ = self.client.list(api.core(kind, project), selector)
        except CloudRefused as error:
            # An account that may not read quotas meets them when a launch is refused, which waits then.
            log.debug("Provider %s: quotas of project %s are not known: %s", self.config.name, project, error)
            return []
        return found

    def preflight(self) -> Iterator[CheckResult]:
        return preflight.of_pods(self.config, self.client)
