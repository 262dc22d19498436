# SPDX-License-Identifier: Apache-2.0
"""Providers that are given a rest, because their cloud keeps failing. Not in metrics.md: Nodepool 11 has none."""

from __future__ import annotations

from nodepool.metrics import names
from nodepool.metrics.statsd import shared_client


def report(provider: str, begins: bool) -> None:
    """Send that a rest begins or ends; a beginning is counted. Neither blocks nor raises.

    :param provider: name of the provider.
    """
    client = shared_client()
    if client is None:
        return
    with client.pipeline() as pipe:
        pipe.gauge(names.provider_resting(names.short_hostname(), provider), int(begins))
        if begins:
            pipe.incr(names.provider_rests(provider))
