# SPDX-License-Identifier: Apache-2.0
"""`StateMachineDriver`: entry point of drivers that have an `Adapter` (reference/driver 10)."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

from nodepool.driver.interface import Driver
from nodepool.driver.statemachine.provider import StateMachineProvider

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.interface import Provider
    from nodepool.driver.statemachine.adapter import Adapter


class StateMachineDriver(Driver):
    """Subclasses implement `getProviderConfig` and `getAdapter`."""

    @abc.abstractmethod
    def getProviderConfig(self, provider: dict[str, Any]) -> ProviderConfig:
        """Make the configuration object of one provider section; it is not loaded yet."""

    @abc.abstractmethod
    def getAdapter(self, provider_config: ProviderConfig) -> Adapter:
        """Make the adapter of a loaded configuration. Must not ask the cloud yet."""

    def getProvider(self, provider_config: ProviderConfig) -> Provider:
        """Wires adapter and provider; a driver that needs ZooKeeper itself overrides it."""
        return StateMachineProvider(self.getAdapter(provider_config), provider_config)
