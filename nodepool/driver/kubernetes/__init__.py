# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes driver. It needs the package ``kubernetes``, which the extra of the same name brings.

Where to begin to read:

* ``config.py``, ``config_checks.py``, ``names.py``: what stands in the configuration.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.kubernetes.config import KubernetesProviderConfig
from nodepool.driver.statemachine.provider import StateMachineDriver


class KubernetesDriver(StateMachineDriver):
    """``driver: kubernetes``"""

    name = "kubernetes"
    libraries = ("kubernetes",)

    def getProviderConfig(self, provider: dict[str, Any]) -> KubernetesProviderConfig:
        return KubernetesProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> Any:
        # Only here: the package "kubernetes" is needed by providers of this kind alone.
        import kubernetes  # noqa: F401

        from nodepool.driver.kubernetes.adapter import KubernetesAdapter

        return KubernetesAdapter(provider_config)
