# SPDX-License-Identifier: Apache-2.0
"""The OpenStack driver (reference/configuration 7). It needs openstacksdk.

Where to begin to read:

* ``config.py``, ``clouds.py``: the keys of the configuration and of clouds.yaml;
* ``transport.py``, ``service_client.py``: one call and its errors; ``api.py``: all calls that are made, and what
  OpenStack says;
* ``cloud.py``: how servers are listed, volumes, floating IPs, data that seldom changes, a server and its addresses;
* ``images.py``: uploads;
* ``adapter.py``: the launch and the deletion of a server, why one is refused, and what is asked by the framework in
  `nodepool.driver.statemachine`, with leaks and ``nodepool check``.
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
