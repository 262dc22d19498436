# SPDX-License-Identifier: Apache-2.0
"""What does a new configuration change? (rules G-4 to G-6)"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from nodepool.quick_dataclass import dataclass


@dataclass(frozen=True)
class ReconfigurePlan:
    """Names of providers, each list in the order of its configuration."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    kept: tuple[str, ...]


def compare(
    old: Mapping[str, Any], new: Mapping[str, Any], equal: Callable[[Any, Any], bool] = operator.eq
) -> ReconfigurePlan:
    """Compare two sets of provider configurations.

    :param equal: are an old one and a new one the same?
    """
    both = [name for name in new if name in old]
    kept = [name for name in both if equal(old[name], new[name])]
    return ReconfigurePlan(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        changed=tuple(name for name in both if name not in kept),
        kept=tuple(kept),
    )
