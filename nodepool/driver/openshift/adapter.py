# SPDX-License-Identifier: Apache-2.0
"""`OpenShiftAdapter`: that of Kubernetes, with projects for namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from nodepool.driver.kubernetes.adapter import KubernetesAdapter
from nodepool.driver.openshift import cluster_quotas, preflight
from nodepool.driver.openshift.cloud import ProjectCloud
from nodepool.driver.openshift.create import ProjectCreation
from nodepool.model.quota import QuotaInformation

if TYPE_CHECKING:
    from nodepool.driver.framework.check_result import CheckResult


#: Projects in which quotas are looked for at most.
ASKED: Final = 3


class OpenShiftAdapter(KubernetesAdapter):
    """One cluster."""

    cloud_class = ProjectCloud
    creation_class = ProjectCreation

    def getQuotaLimits(self) -> QuotaInformation:
        """What quotas of several projects leave, if there is a project of ours in which they can be read.

        They select projects by who asked for them, or by what the cluster's template writes: all of ours, or none.
        """
        known = [record for record in self.cloud.inventory.known() if not record.terminating]
        if not known:
            return super().getQuotaLimits()
        # One may be going at this moment.
        quotas = next(filter(None, (cluster_quotas.applied(self.client, record.id) for record in known[:ASKED])), [])
        counted = {record.id: self._use_of(record).quota["compute"] for record in known}
        found = cluster_quotas.of_all(quotas, counted)
        if any(not label.is_pod for pool in self.config.pools.values() for label in pool.labels.values()):
            # How many pods a job makes in its project is not known: the number of pods does not limit that of nodes.
            found.quota["compute"].pop("instances", None)
        return found

    def preflight(self) -> Iterator[CheckResult]:
        return preflight.of_openshift(self.config, self.client)
