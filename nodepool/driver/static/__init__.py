# SPDX-License-Identifier: Apache-2.0
"""The static driver: hosts that exist already and are handed out again and again (rules S).

* ``config.py``: the keys of the configuration file;
* ``provider.py``: keeps one ready node for each free slot; ``registration.py``: its writes to ZooKeeper;
* ``slot_index.py``: which nodes have a slot;
* ``checks.py``: host checks in a thread pool; ``host_monitor.py``: what they showed, and when a host is checked again;
* ``quarantines.py``, ``quarantine_keeper.py``: which hosts are out of service, and the effects;
* ``host_view.py``: what the provider reports about its hosts;
* ``ready_checks.py``: whether a ready node may be handed out;
* ``tasks.py``: makes a released node `ready` again;
* ``handler.py``: one request.

The decisions are in `nodepool.plan.static`.
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
