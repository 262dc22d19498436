# SPDX-License-Identifier: Apache-2.0
"""The module `nodepool.provider_manager` of 11.0.0."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from nodepool.driver import gateway
from nodepool.driver.registry import Drivers

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig
    from nodepool.driver.interface import Provider

__all__ = ["ProviderManager", "get_provider"]


def get_provider(provider: ProviderConfig) -> Provider:
    """Make the provider of a loaded section; it is not started."""
    made: Provider = gateway.get_provider(provider.name, Drivers.get(provider.driver.name), provider)
    return made


class ProviderManager:
    """Providers of a configuration for programs of their own; the launcher has `nodepool.runtime.providers`."""

    log = logging.getLogger("nodepool.ProviderManager")

    @staticmethod
    def reconfigure(old_config: Any, new_config: Any, zk_conn: Any, only_image_manager: bool = False) -> None:
        """Start the providers of a configuration, into ``new_config.provider_managers``; stop those that went.

        :param old_config: the configuration before, or None.
        :param only_image_manager: leave out those that have no images.
        """
        old = dict(getattr(old_config, "provider_managers", {}))
        managers: dict[str, Provider] = {}
        for name, section in new_config.providers.items():
            if only_image_manager and not section.manage_images:
                continue
            running = old.get(name)
            if running is not None and running.provider == section:
                managers[name] = old.pop(name)
                continue
            manager = get_provider(section)
            manager.zk = zk_conn
            gateway.start_provider(manager, zk_conn)
            managers[name] = manager
        new_config.provider_managers = managers
        for manager in old.values():
            gateway.stop_provider(manager)

    @staticmethod
    def stopProviders(config: Any) -> None:
        """Stop the providers of a configuration, and wait for them."""
        managers = list(getattr(config, "provider_managers", {}).values())
        for manager in managers:
            gateway.stop_provider(manager)
        for manager in managers:
            gateway.join_provider(manager)
