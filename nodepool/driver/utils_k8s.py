# SPDX-License-Identifier: Apache-2.0
"""A module of 11.0.0 that drivers written for it import: `nodepool.compat.modules`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.late_names import late_names

if not TYPE_CHECKING:
    __getattr__ = late_names(__name__, {"get_client": "nodepool.compat.modules"})
