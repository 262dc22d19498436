# SPDX-License-Identifier: Apache-2.0
"""`OpenShiftAdapter`: that of Kubernetes, with projects for namespaces."""

from __future__ import annotations

from nodepool.driver.kubernetes.adapter import KubernetesAdapter
from nodepool.driver.openshift.cloud import ProjectCloud
from nodepool.driver.openshift.create import ProjectCreation


class OpenShiftAdapter(KubernetesAdapter):
    """One cluster."""

    cloud_class = ProjectCloud
    creation_class = ProjectCreation
