# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes driver. It needs the package ``kubernetes``, which the extra of the same name brings.

Where to begin to read:

* ``config.py``: what stands in the configuration;
* ``connection.py``, ``client.py``: calls, and what can go wrong;
* ``objects.py``: what is made for a node, and what is kept of it;
* ``create.py``: the launch; ``cloud.py``: what the cluster reports, and what launches and deletions share;
* ``adapter.py``: puts it all together for the framework in `nodepool.driver.statemachine`, with what
  ``nodepool check`` looks at.
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
        from nodepool.driver.kubernetes.adapter import KubernetesAdapter

        return KubernetesAdapter(provider_config)
