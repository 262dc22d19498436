# SPDX-License-Identifier: Apache-2.0
"""What a driver implements and uses (reference/driver 1 to 6). A driver imports its bases from here."""

from nodepool.driver.config import ConfigPool, ConfigValue, ProviderConfig
from nodepool.driver.framework.handler_hooks import NodeRequestHandlerNotifications
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.interface import Driver, Provider, ProviderNotifications
from nodepool.driver.registry import Drivers

__all__ = [
    "ConfigPool",
    "ConfigValue",
    "Driver",
    "Drivers",
    "NodeRequestHandler",
    "NodeRequestHandlerNotifications",
    "Provider",
    "ProviderConfig",
    "ProviderNotifications",
]
