# SPDX-License-Identifier: Apache-2.0
"""The static driver: hosts that exist already and are handed out again and again (rules S).

* ``config.py``: what stands in the configuration file;
* ``provider.py``: keeps one ready node for each free slot; ``registration.py``: its writes to ZooKeeper;
* ``slot_index.py``: which nodes have a slot;
* ``checks.py``: host checks in a thread pool; ``host_monitor.py``: what they showed, and when a host is checked again;
* ``quarantines.py``, ``quarantine_keeper.py``: which hosts are taken out of service, and what follows;
* ``host_view.py``: what the provider reports of its hosts;
* ``ready_checks.py``: whether a ready node may be handed out;
* ``tasks.py``: the way of a released node back to `ready`;
* ``handler.py``: one request.

What has to be done is decided in `nodepool.plan.static_hosts`.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.interface import Driver
from nodepool.driver.static.config import StaticProviderConfig
from nodepool.driver.static.provider import StaticProvider


class StaticDriver(Driver):
    """``driver: static``"""

    name = "static"

    def getProviderConfig(self, provider: dict[str, Any]) -> StaticProviderConfig:
        return StaticProviderConfig(provider)

    def getProvider(self, provider_config: Any) -> StaticProvider:
        return StaticProvider(provider_config)
