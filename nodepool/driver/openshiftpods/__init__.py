# SPDX-License-Identifier: Apache-2.0
"""The driver of pods in OpenShift projects that are there, thin on top of that of Kubernetes."""

from __future__ import annotations

from nodepool.driver.openshift.adapter import OpenShiftPodsAdapter, OpenShiftPodsProviderConfig
from nodepool.driver.statemachine.provider import CloudDriver


class OpenShiftPodsDriver(CloudDriver):
    """``driver: openshiftpods``"""

    name = "openshiftpods"
    libraries = ("kubernetes",)
    config_class = OpenShiftPodsProviderConfig
    adapter_class = OpenShiftPodsAdapter
