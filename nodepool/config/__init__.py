# SPDX-License-Identifier: Apache-2.0
"""Reads YAML files and makes validated objects of them (reference/configuration)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.late_names import late_names

if not TYPE_CHECKING:
    # Drivers written for 11.0.0 import these from here.
    __getattr__ = late_names(
        __name__,
        {
            "Config": "nodepool.compat.modules",
            "DiskImage": "nodepool.compat.modules",
            "Label": "nodepool.compat.modules",
            "as_list": "nodepool.compat.modules",
            "get_provider_config": "nodepool.compat.modules",
            "loadConfig": "nodepool.compat.modules",
        },
    )
