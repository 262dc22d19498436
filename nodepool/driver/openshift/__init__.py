# SPDX-License-Identifier: Apache-2.0
"""The OpenShift driver, thin on top of that of Kubernetes: a project for each node."""

from __future__ import annotations

from typing import Any

from nodepool.driver.openshift.adapter import OpenShiftAdapter, OpenShiftProviderConfig
from nodepool.driver.statemachine.provider import StateMachineDriver


class OpenShiftDriver(StateMachineDriver):
    """``driver: openshift``"""

    name = "openshift"
    libraries = ("kubernetes",)

    def getProviderConfig(self, provider: dict[str, Any]) -> OpenShiftProviderConfig:
        return OpenShiftProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> Any:
        return OpenShiftAdapter(provider_config)
