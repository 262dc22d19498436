# SPDX-License-Identifier: Apache-2.0
"""What does a new configuration change? (rules G-4 to G-6)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ReconfigurePlan:
    """Names of providers, each list in the order of its configuration."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    kept: tuple[str, ...]


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> ReconfigurePlan:
    """Compare two sets of provider configurations, which only need ``==``."""
    both = [name for name in new if name in old]
    kept = [name for name in both if old[name] == new[name]]
    return ReconfigurePlan(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in both if name not in kept),
        kept=tuple(kept),
    )
