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
            "Config": "nodepool.compat.configuration",
            "DiskImage": "nodepool.compat.configuration",
            "Label": "nodepool.compat.configuration",
            "as_list": "nodepool.compat.configuration",
            "get_provider_config": "nodepool.compat.configuration",
            "loadConfig": "nodepool.compat.configuration",
        },
    )
