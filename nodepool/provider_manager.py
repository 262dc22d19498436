# SPDX-License-Identifier: Apache-2.0
"""A module of 11.0.0 that drivers written for it import: `nodepool.compat.modules`."""

from nodepool.compat.modules import ProviderManager, get_provider

__all__ = ["ProviderManager", "get_provider"]
