# SPDX-License-Identifier: Apache-2.0
"""The fake driver: launches instances in a cloud that is only in memory.

It is small on purpose: read it to learn how a driver is written, in this order.

* this file: `Driver`, the entry point;
* ``config.py``: the keys of the configuration file;
* ``provider.py``: one configured cloud: start, stop, quota, deletion, leaks; then one request: is there room, launch a
  node;
* ``cloud.py``: the cloud itself, which a real driver does not have.

It also serves tests and demonstrations: knobs in the configuration, or in ``FakeCloud.get(name)``, make it slow,
full or unreliable. `nodepool.testing.contract` checks it, and every other driver, against the rules.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver import Driver
from nodepool.driver.fake.config import FakeProviderConfig
from nodepool.driver.fake.provider import FakeProvider, FakeRequestHandler


class FakeDriver(Driver):
    """``driver: fake``"""

    name = "fake"

    def getProviderConfig(self, provider: dict[str, Any]) -> FakeProviderConfig:
        return FakeProviderConfig(provider)

    def getProvider(self, provider_config: Any) -> FakeProvider:
        return FakeProvider(provider_config, FakeRequestHandler)
