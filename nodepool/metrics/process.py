# SPDX-License-Identifier: Apache-2.0
"""The metrics of this process."""

from __future__ import annotations

from typing import Final

from nodepool.metrics.registry import Registry
from nodepool.metrics.statsd import shared_client
from nodepool.metrics.statsd_sink import StatsdSink

#: What everything in this process counts with. statsd is told when its environment variables are set.
REGISTRY: Final = Registry([StatsdSink(lambda: shared_client())])
