# SPDX-License-Identifier: Apache-2.0
"""The Azure driver. It needs no library of Azure's: it makes less than twenty kinds of calls.

Where to begin to read:

* ``config.py``: what stands in the configuration; ``login.py``: credentials and tokens;
* ``client.py``: what Azure says, and also what can go wrong, and all calls that are made;
* ``facts.py``: what seldom changes, places and limits;
* ``images.py``: uploads, and what Azure takes long for;
* ``adapter.py``: how VMs are listed, launched and deleted, what is asked by the framework in
  `nodepool.driver.statemachine`, and ``nodepool check``.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.azure.adapter import AzureAdapter
from nodepool.driver.azure.config import AzureProviderConfig
from nodepool.driver.statemachine.provider import StateMachineDriver


class AzureDriver(StateMachineDriver):
    """``driver: azure``"""

    name = "azure"

    def getProviderConfig(self, provider: dict[str, Any]) -> AzureProviderConfig:
        return AzureProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> AzureAdapter:
        return AzureAdapter(provider_config)
