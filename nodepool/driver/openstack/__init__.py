# SPDX-License-Identifier: Apache-2.0
"""The OpenStack driver (reference/configuration 7). It needs openstacksdk.

Where to begin to read:

* ``config.py``, ``schema.py``, ``clouds.py``: the keys of the configuration and of clouds.yaml;
* ``transport.py``: one call; ``api.py``: all calls that are made; ``errors.py``: errors of calls;
* ``server_list.py``: how servers are listed; ``facts.py``: data that seldom changes;
* ``create.py``, ``delete.py``: launches and deletions in Nova; ``verdicts.py``: why a server is not created;
* ``floating.py``, ``addresses.py``: addresses of servers;
* ``leaks.py``: leaked resources; ``images.py``, ``image_tasks.py``: uploads;
* ``cloud.py``, ``adapter.py``: put it all together for the framework in `nodepool.driver.statemachine`.

The SDK is imported when a cloud is looked up in clouds.yaml, that is, only if this driver is configured.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.openstack.adapter import OpenStackAdapter
from nodepool.driver.openstack.clouds import Clouds
from nodepool.driver.openstack.config import OpenStackProviderConfig
from nodepool.driver.statemachine.provider import StateMachineDriver


class OpenStackDriver(StateMachineDriver):
    """``driver: openstack``"""

    name = "openstack"
    libraries = ("openstack", "keystoneauth1", "requests", "urllib3")

    def __init__(self) -> None:
        self._clouds = Clouds()

    def reset(self) -> None:
        """clouds.yaml is read again with the next configuration."""
        self._clouds.forget()

    def getProviderConfig(self, provider: dict[str, Any]) -> OpenStackProviderConfig:
        return OpenStackProviderConfig(provider, self._clouds)

    def getAdapter(self, provider_config: Any) -> OpenStackAdapter:
        return OpenStackAdapter(provider_config)
