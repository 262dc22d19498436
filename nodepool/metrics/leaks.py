# SPDX-License-Identifier: Apache-2.0
"""Leaked resources that were deleted (reference/metrics 4)."""

from __future__ import annotations

from nodepool.metrics.catalog import LEAKED
from nodepool.metrics.process import REGISTRY


def report(provider: str, resource: str, count: int = 1) -> None:
    """Count deleted resources. Neither blocks nor raises.

    :param provider: name of the provider.
    :param resource: plural, e.g. ``instances``, ``ports``.
    """
    if count > 0:
        REGISTRY.count(LEAKED.series(provider, resource), count)
