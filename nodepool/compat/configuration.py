# SPDX-License-Identifier: Apache-2.0
"""Functions of the module `nodepool.config` of 11.0.0. Its classes are in `nodepool.config.objects`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nodepool.config.loader import load_config
from nodepool.config.objects import Config, DiskImage, Label
from nodepool.driver.config import DEFAULT_DRIVER
from nodepool.driver.registry import Drivers

if TYPE_CHECKING:
    from nodepool.driver.config import ProviderConfig

__all__ = ["Config", "DiskImage", "Label", "as_list", "get_provider_config", "loadConfig"]


def as_list(item: Any) -> list[Any]:
    """A list as it is, nothing as an empty one, anything else as a list of one."""
    if not item:
        return []
    return item if isinstance(item, list) else [item]


def get_provider_config(provider: dict[str, Any]) -> ProviderConfig:
    """The object of a provider section, not loaded yet."""
    return Drivers.get(provider.get("driver", DEFAULT_DRIVER)).getProviderConfig(provider)


def loadConfig(config_path: str, env: Mapping[str, str] | None = None) -> Config:
    """Load a configuration file. Blocks.

    :param env: not used: the environment of the process counts.
    :raises ConfigError: every problem, one a line, with file and line.
    """
    return load_config(config_path)
