# SPDX-License-Identifier: Apache-2.0
"""Leaked resources that were deleted (metrics.md 4)."""

from __future__ import annotations

from nodepool.metrics import names
from nodepool.metrics.statsd import shared_client


def report(provider: str, resource: str, count: int = 1) -> None:
    """Count deleted resources. Neither blocks nor raises.

    :param provider: name of the provider.
    :param resource: plural, e.g. ``instances``, ``ports``.
    """
    client = shared_client()
    if client is not None and count > 0:
        client.incr(names.leaked(provider, resource), count)
