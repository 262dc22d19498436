# SPDX-License-Identifier: Apache-2.0
"""Calls of drivers in the metrics of the process."""

from __future__ import annotations

from nodepool.driver.gateway import CallCount
from nodepool.metrics.catalog import DRIVER_CALL_ERRORS, DRIVER_CALL_SECONDS, DRIVER_CALLS
from nodepool.metrics.registry import Registry
from nodepool.runtime.call_metrics import PUBLISH_SECONDS, CallMetrics


def test_what_is_new_is_added() -> None:
    registry = Registry()
    counts = [CallCount("labelReady", "one", 2, 1, 0.5)]
    now = [100.0]
    metrics = CallMetrics(registry, lambda: counts, lambda: now[0])
    metrics.publish()
    now[0] += PUBLISH_SECONDS
    metrics.publish()
    place = ("labelReady", "one")
    assert registry.snapshot() == {
        DRIVER_CALLS.series(*place): 2,
        DRIVER_CALL_ERRORS.series(*place): 1,
        DRIVER_CALL_SECONDS.series(*place): 0.5,
    }
    counts[:] = [CallCount("labelReady", "one", 5, 1, 0.75), CallCount("start", "two", 1, 0, 0.0)]
    metrics.publish()
    assert registry.snapshot()[DRIVER_CALLS.series(*place)] == 2, "not all the time"
    now[0] += PUBLISH_SECONDS
    metrics.publish()
    assert registry.snapshot() == {
        DRIVER_CALLS.series(*place): 5,
        DRIVER_CALL_ERRORS.series(*place): 1,
        DRIVER_CALL_SECONDS.series(*place): 0.75,
        DRIVER_CALLS.series("start", "two"): 1,
    }
