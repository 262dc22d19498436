# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.call_counts`; how calls are counted is in test_gateway."""

from __future__ import annotations

from nodepool.driver.framework.call_counts import CallCount, CountedCalls


def test_begin() -> None:
    counted = CountedCalls()
    assert CallCount("launch", "cloud", counted.calls, counted.errors, counted.seconds) == ("launch", "cloud", 0, 0, 0)
