# SPDX-License-Identifier: Apache-2.0
"""Results of launches (metrics.md 3)."""

from __future__ import annotations

from nodepool.metrics import names
from nodepool.metrics.statsd import shared_client


def report(
    result: str, duration_ms: float, *, provider: str, az: str | None = None, requestor: str | None = None
) -> None:
    """Send one result as a timer and as a counter under each of its keys. Neither blocks nor raises.

    :param result: ``ready`` or ``error.<class>``.
    :param duration_ms: milliseconds since the launch began, over all its attempts.
    :param provider: name of the provider.
    :param az: availability zone of the node, if it has one.
    :param requestor: of the request, if it has one.
    """
    client = shared_client()
    if client is None:
        return
    with client.pipeline() as pipe:
        for key in names.launch_keys(result, provider, az, requestor):
            pipe.timing(key, duration_ms)
            pipe.incr(key)
