# SPDX-License-Identifier: Apache-2.0
"""The driver of IBM VPC. It needs no library of IBM's: it makes some twenty kinds of calls.

Where to begin to read:

* ``config.py``, ``image_config.py``, ``config_checks.py``: what stands in the configuration;
* ``external_sources.py``, ``credentials.py``, ``login.py``: credentials and tokens;
* ``client.py``: all calls that are made; ``types.py``: what IBM says; ``errors.py``: what can go wrong;
* ``facts.py``: what seldom changes; ``quota.py``: limits;
* ``names.py``, ``places.py``, ``launch_spec.py``: what an instance is to be like; ``creation.py``: how it is made;
* ``floating.py``, ``kept_addresses.py``, ``address_shortage.py``: floating IPs, which are used again;
* ``machines.py``: what launches and deletions share; ``preempted.py``: instances that stop by themselves;
* ``images.py``, ``image_upload.py``, ``object_store.py``: uploads of images;
* ``resources.py``: what may be left over;
* ``preflight.py``: what ``nodepool check`` looks at;
* ``adapter.py``: puts it all together for the framework in `nodepool.driver.statemachine`.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.ibmvpc.adapter import IbmAdapter
from nodepool.driver.ibmvpc.config import IbmProviderConfig
from nodepool.driver.statemachine.provider import StateMachineDriver


class IbmVpcDriver(StateMachineDriver):
    """``driver: ibmvpc``"""

    name = "ibmvpc"

    def getProviderConfig(self, provider: dict[str, Any]) -> IbmProviderConfig:
        return IbmProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> IbmAdapter:
        return IbmAdapter(provider_config)
