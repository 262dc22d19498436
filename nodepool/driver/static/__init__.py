# SPDX-License-Identifier: Apache-2.0
"""The static driver: hosts that exist already and are handed out again and again (rules S).

* ``config.py``: the keys of the configuration file;
* ``provider.py``: keeps one ready node for each free slot, hands nodes out, and makes released ones `ready` again;
* ``checks.py``: host checks in a thread pool, what they have shown, and which hosts are out of service.

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
