# SPDX-License-Identifier: Apache-2.0
"""`OpenShiftPodsAdapter`: pods in projects that are there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodepool.driver.framework.cloud_errors import CloudRefused
from nodepool.driver.kubernetes import api, limits
from nodepool.driver.kubernetes.adapter import KubernetesAdapter
from nodepool.driver.openshift import preflight
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
        return limits.together([self._limits_of(project) for project in self.config.pools])

    def _limits_of(self, project: str) -> QuotaInformation:
        try:
            quotas, _ = self.client.list(api.core("resourcequotas", project))
            if not quotas:
                return limits.of_quotas((), ())
            pods, _ = self.client.list(api.core("pods", project), self.cloud.selector)
        except CloudRefused as error:
            # An account that may not read them meets them when a launch is refused, which waits then.
            log.debug("Provider %s: quotas of project %s are not known: %s", self.config.name, project, error)
            return limits.of_quotas((), ())
        return limits.of_quotas(quotas, pods)

    def preflight(self) -> Iterator[CheckResult]:
        return preflight.of_pods(self.config, self.client)
