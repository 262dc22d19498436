# SPDX-License-Identifier: Apache-2.0
"""Reads YAML files and makes validated objects of them (reference/configuration)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.late_names import late_names

if not TYPE_CHECKING:
    # Drivers written for 11.0.0 import these from here.
    _NAMES = ("Config", "DiskImage", "Label", "as_list", "get_provider_config", "loadConfig")
    __getattr__ = late_names(__name__, dict.fromkeys(_NAMES, "nodepool.compat.modules"))
