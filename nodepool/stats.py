# SPDX-License-Identifier: Apache-2.0
"""A module of 11.0.0 that drivers written for it import."""

from nodepool.compat.modules import StatsReporter
from nodepool.metrics.registry import get_client
from nodepool.metrics.registry import normalise as normalize_statsd_name

__all__ = ["StatsReporter", "get_client", "normalize_statsd_name"]
