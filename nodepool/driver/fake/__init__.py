# SPDX-License-Identifier: Apache-2.0
"""The fake driver: launches instances in a cloud that is only in memory.

* ``config.py``: the keys of the configuration file;
* ``provider.py``: the calls of the framework;
* ``cloud.py``: the cloud itself, which a real driver does not have.

It serves tests and demonstrations: knobs in the configuration, or in ``FakeCloud.get(name)``, make it slow, full or
unreliable. To learn how a driver is written read `nodepool.driver.example`.
"""

from __future__ import annotations

from typing import Any

from nodepool.driver.fake.config import FakeProviderConfig
from nodepool.driver.fake.provider import FakeAdapter, FakeProvider
from nodepool.driver.statemachine import StateMachineDriver


class FakeDriver(StateMachineDriver):
    """``driver: fake``"""

    name = "fake"

    def getProviderConfig(self, provider: dict[str, Any]) -> FakeProviderConfig:
        return FakeProviderConfig(provider)

    def getAdapter(self, provider_config: Any) -> FakeAdapter:
        return FakeAdapter(provider_config)

    def getProvider(self, provider_config: Any) -> FakeProvider:
        return FakeProvider(self.getAdapter(provider_config), provider_config)
