# SPDX-License-Identifier: Apache-2.0
"""Instances that ended, and why (reference/metrics 9)."""

from __future__ import annotations

from nodepool.metrics.catalog import INSTANCES_ENDED
from nodepool.metrics.process import REGISTRY


def report_end(provider: str, reason: str) -> None:
    """Count an instance that ended. Neither blocks nor raises.

    :param provider: name of the provider.
    :param reason: code of the cloud, e.g. ``Server.SpotInstanceTermination``; "" = it gives none.
    """
    REGISTRY.count(INSTANCES_ENDED.series(provider, reason or "none"))
