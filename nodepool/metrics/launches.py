# SPDX-License-Identifier: Apache-2.0
"""Results of launches (reference/metrics 3)."""

from __future__ import annotations

from nodepool.metrics.catalog import BOOT, LAUNCH, SCAN
from nodepool.metrics.process import REGISTRY


def report(
    result: str, duration_ms: float, *, provider: str, az: str | None = None, requestor: str | None = None
) -> None:
    """Note the result of a launch and how long it took. Neither blocks nor raises.

    :param result: ``ready`` or ``error.<class>``.
    :param duration_ms: milliseconds since the launch began, over all its attempts.
    :param provider: name of the provider.
    :param az: availability zone of the node, if it has one.
    :param requestor: of the request, if it has one.
    """
    REGISTRY.time(LAUNCH.series(result, provider, az or "", requestor or ""), duration_ms / 1000)


def report_boot(provider: str, seconds: float) -> None:
    """Note that a cloud said of an instance that it runs, so long after the attempt began. As `report`."""
    REGISTRY.time(BOOT.series(provider), seconds)


def report_scan(provider: str, seconds: float) -> None:
    """Note that an instance could be logged in to, so long after that. As `report`."""
    REGISTRY.time(SCAN.series(provider), seconds)
