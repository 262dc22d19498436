# SPDX-License-Identifier: Apache-2.0
"""A module of 11.0.0 that drivers written for it import: `nodepool.compat.stats_reporter`."""

from nodepool.compat.stats_reporter import StatsReporter, get_client, normalize_statsd_name

__all__ = ["StatsReporter", "get_client", "normalize_statsd_name"]
