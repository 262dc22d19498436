# SPDX-License-Identifier: Apache-2.0
"""The metastatic driver: several nodes share one node of another provider (rules T).

* ``config.py``: what stands in the configuration file;
* ``records.py``: what is written into nodes;
* ``adapter.py``: slots as instances of a cloud; ``provider.py``: gives it ZooKeeper;
* ``allocator.py``: the task that does everything, with ``slot_requests.py``: what launches want of it,
  ``backing_view.py``: backing nodes and who is on them, ``backing_requests.py``: requests for backing nodes,
  ``claims.py``: how a node becomes ours.

What has to be done is decided in `nodepool.plan.backing`.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.metastatic.adapter import MetastaticAdapter
from nodepool.driver.metastatic.config import MetastaticProviderConfig
from nodepool.driver.metastatic.provider import MetastaticProvider
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
