# SPDX-License-Identifier: Apache-2.0
"""The OpenShift driver, thin on top of that of Kubernetes: a project for each node."""

from __future__ import annotations

from nodepool.driver.openshift.adapter import OpenShiftAdapter, OpenShiftProviderConfig
from nodepool.driver.statemachine.provider import CloudDriver


class OpenShiftDriver(CloudDriver):
    """``driver: openshift``"""

    name = "openshift"
    libraries = ("kubernetes",)
    config_class = OpenShiftProviderConfig
    adapter_class = OpenShiftAdapter
