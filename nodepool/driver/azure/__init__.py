# SPDX-License-Identifier: Apache-2.0
"""The Azure driver. It needs no library of Azure's: it makes less than twenty kinds of calls.

Where to begin to read:

* ``config.py``, ``image_config.py``, ``config_checks.py``: what stands in the configuration;
* ``auth_file.py``, ``login.py``, ``client_assertion.py``: credentials and tokens;
* ``client.py``: all calls that are made; ``types.py``: what Azure says; ``errors.py``: what can go wrong;
* ``facts.py``: what seldom changes; ``quota.py``: limits;
* ``names.py``, ``places.py``, ``launch_spec.py``: what a VM is to be like; ``creation.py``: how it is made;
* ``machines.py``: what launches and deletions share; ``proof.py``: when a VM is gone;
* ``images.py``, ``image_calls.py``, ``vhd.py``: uploads; ``long_operation.py``: what Azure takes long for;
* ``preflight.py``: what ``nodepool check`` looks at;
* ``adapter.py``: puts it all together for the framework in `nodepool.driver.statemachine`.
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
