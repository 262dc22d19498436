# SPDX-License-Identifier: Apache-2.0
"""The metastatic driver: several nodes share one node of another provider (rules T).

* ``config.py``: the keys of the configuration file;
* ``provider.py``: slots as instances of a cloud, and the task that assigns them and takes over backing nodes;
* ``backing.py``: backing nodes, the nodes on them, the requests for backing nodes, and what is written into nodes.

The decisions are in `nodepool.plan.backing`.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.metastatic.config import MetastaticProviderConfig
from nodepool.driver.metastatic.provider import MetastaticAdapter, MetastaticProvider
from nodepool.driver.statemachine import StateMachineDriver


class MetastaticDriver(StateMachineDriver):
    """``driver: metastatic``"""

    name = "metastatic"

    def getProviderConfig(self, provider: dict[str, Any]) -> MetastaticProviderConfig:
        return MetastaticProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> MetastaticAdapter:
        return MetastaticAdapter(provider_config)

    def getProvider(self, provider_config: Any) -> MetastaticProvider:
        return MetastaticProvider(self.getAdapter(provider_config), provider_config)
