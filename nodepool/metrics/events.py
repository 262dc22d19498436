# SPDX-License-Identifier: Apache-2.0
"""Metrics of single events: the result of a launch, a leaked resource (metrics.md 3, 4)."""

from __future__ import annotations

from typing import Final

from nodepool.metrics import names
from nodepool.metrics.statsd import StatsdClient

READY: Final = "ready"
ZK_SESSION: Final = "error.zksession"
UNKNOWN: Final = "error.unknown"


def launch_result(error: BaseException | None) -> str:
    """The ``<result>`` of a launch: ``ready`` without an error, else what the class of the error says."""
    if error is None:
        return READY
    key = getattr(error, "statsd_key", UNKNOWN)
    return key if isinstance(key, str) else UNKNOWN


def report_launch(
    client: StatsdClient | None,
    *,
    result: str,
    duration_seconds: float,
    provider: str,
    az: str | None = None,
    requestor: str | None = None,
) -> None:
    """Send one result as a timer and as a counter under each of its keys. Neither blocks nor raises.

    :param client: None: metrics are off.
    :param result: see `launch_result`.
    :param duration_seconds: since the launch began, over all its attempts.
    :param provider: name of the provider.
    :param az: availability zone of the node, if it has one.
    :param requestor: of the request, if it has one.
    """
    if client is None:
        return
    with client.pipeline() as pipe:
        for key in names.launch_keys(result, provider, az, requestor):
            pipe.timing(key, duration_seconds * 1000)
            pipe.incr(key)


def report_leaked(client: StatsdClient | None, provider: str, resource: str, count: int = 1) -> None:
    """Count deleted leaked resources. Neither blocks nor raises.

    :param client: None: metrics are off.
    :param resource: plural, e.g. ``instances``, ``ports``.
    """
    if client is not None and count > 0:
        client.incr(names.leaked(provider, resource), count)
