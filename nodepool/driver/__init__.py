# SPDX-License-Identifier: Apache-2.0
"""The classes that a driver implements or uses (reference/driver 1 to 6). A driver imports its bases from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.driver.config import ConfigPool, ConfigValue, ProviderConfig
from nodepool.driver.framework.cloud_errors import CheckResult
from nodepool.driver.framework.handler_hooks import NodeRequestHandlerNotifications
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.interface import Driver, Provider, ProviderNotifications
from nodepool.driver.registry import Drivers
from nodepool.late_names import late_names

__all__ = [
    "CheckResult",
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

if not TYPE_CHECKING:
    # Drivers written for 11.0.0 import these from here.
    __getattr__ = late_names(
        __name__,
        {
            "DriverConfig": "nodepool.compat.modules",
            "LabelRecorder": "nodepool.compat.modules",
        },
    )
