# SPDX-License-Identifier: Apache-2.0
"""The module `nodepool.stats` of 11.0.0."""

from __future__ import annotations

from typing import Any

from nodepool.metrics import reports
from nodepool.metrics.registry import normalise as normalize_statsd_name
from nodepool.metrics.statsd import get_client

__all__ = ["StatsReporter", "get_client", "normalize_statsd_name"]


class StatsReporter:
    """Base of classes that launch nodes by themselves, and count it.

    They have ``provider_config``, ``node`` and ``handler``. What the launcher counts itself is not counted again:
    the other methods do nothing.

    :param statsd_client: not used: the launcher has one of its own.
    """

    provider_config: Any
    node: Any
    handler: Any

    def __init__(self, statsd_client: Any) -> None:
        self._statsd = statsd_client

    def recordLaunchStats(self, subkey: str, dt: float) -> None:
        """Note the result of a launch.

        :param subkey: ``ready`` or ``error.<class>``.
        :param dt: milliseconds that it took.
        """
        reports.report_launch(
            subkey,
            dt,
            provider=self.provider_config.name,
            az=self.node.az,
            requestor=self.handler.request.requestor,
        )

    def updateNodeRequestStats(self, zk_conn: Any) -> None:
        """Nothing: the launcher counts requests."""

    def updateNodeStats(self, zk_conn: Any) -> None:
        """Nothing: the launcher counts nodes."""

    def updateProviderLimits(self, provider: Any) -> None:
        """Nothing: the launcher counts limits."""

    def updateTenantLimits(self, tenant_limits: Any) -> None:
        """Nothing: the launcher counts limits of tenants."""
