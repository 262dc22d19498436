# SPDX-License-Identifier: Apache-2.0
"""The driver of pods in OpenShift projects that are there, thin on top of that of Kubernetes."""

from __future__ import annotations

from typing import Any

from nodepool.driver.openshift.adapter import OpenShiftPodsAdapter, OpenShiftPodsProviderConfig
from nodepool.driver.statemachine.provider import StateMachineDriver


class OpenShiftPodsDriver(StateMachineDriver):
    """``driver: openshiftpods``"""

    name = "openshiftpods"
    libraries = ("kubernetes",)

    def getProviderConfig(self, provider: dict[str, Any]) -> OpenShiftPodsProviderConfig:
        return OpenShiftPodsProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> Any:
        return OpenShiftPodsAdapter(provider_config)
