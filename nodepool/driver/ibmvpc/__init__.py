# SPDX-License-Identifier: Apache-2.0
"""The driver of IBM VPC, with IBM's libraries for its calls and logins.

Where to begin to read:

* ``config.py``: what stands in the configuration; ``login.py``: credentials and tokens;
* ``client.py``: all calls that are made; ``types.py``: what IBM says, also what can go wrong, and names;
* ``facts.py``: what seldom changes, places, limits, and the body of a launch;
* ``floating.py``: floating IPs, which are used again;
* ``images.py``: uploads of images;
* ``adapter.py``: how instances are listed, launched and deleted, what is asked by the framework in
  `nodepool.driver.statemachine`, and ``nodepool check``.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.ibmvpc.adapter import IbmAdapter
from nodepool.driver.ibmvpc.config import IbmProviderConfig
from nodepool.driver.statemachine.provider import StateMachineDriver


class IbmVpcDriver(StateMachineDriver):
    """``driver: ibmvpc``"""

    name = "ibmvpc"
    libraries = ("ibm_cloud_sdk_core", "ibm_vpc")

    def getProviderConfig(self, provider: dict[str, Any]) -> IbmProviderConfig:
        return IbmProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> IbmAdapter:
        return IbmAdapter(provider_config)
