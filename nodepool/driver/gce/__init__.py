# SPDX-License-Identifier: Apache-2.0
"""The driver of Google Compute Engine. Of Google's libraries it needs only google-auth.

It makes less than thirty kinds of calls. Where to begin to read:

* ``config.py``: what stands in the configuration;
* ``client.py``: all calls for instances, and tokens; ``types.py``: what Google says, also what can go wrong;
* ``facts.py``: what seldom changes, places and limits;
* ``instances.py``: how instances are listed, launched and deleted, and what operations say of that;
* ``images.py``: uploads;
* ``adapter.py``: puts it all together for the framework in `nodepool.driver.statemachine`, and ``nodepool check``.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.gce.adapter import GceAdapter
from nodepool.driver.gce.config import GceProviderConfig
from nodepool.driver.statemachine.provider import StateMachineDriver


class GceDriver(StateMachineDriver):
    """``driver: gce``"""

    name = "gce"
    libraries = ("google.auth",)

    def getProviderConfig(self, provider: dict[str, Any]) -> GceProviderConfig:
        return GceProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> GceAdapter:
        return GceAdapter(provider_config)
