# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.address_shortage` (CM-6)."""

from __future__ import annotations

from nodepool.driver.framework.cloud_errors import CloudQuota
from nodepool.driver.ibmvpc.address_shortage import SHORT_SECONDS, AddressShortages
from tests.support.manual_clock import ManualClock

ERROR = CloudQuota("40 of 40", code="over_quota")


def test_refusal_counts_for_a_while() -> None:
    """CM-6: of the zone alone; IBM is asked again later."""
    clock = ManualClock()
    shortages = AddressShortages(clock)
    assert shortages.of("us-south-1") is None
    shortages.refused("us-south-1", ERROR)
    assert (shortages.of("us-south-1"), shortages.of("us-south-2")) == (ERROR, None)
    clock.now += SHORT_SECONDS
    assert shortages.of("us-south-1") is None


def test_until_one_is_free() -> None:
    """CM-6: a launch that waits goes on as soon as a node is gone."""
    shortages = AddressShortages(ManualClock())
    shortages.refused("us-south-1", ERROR)
    shortages.freed("us-south-2")
    assert shortages.of("us-south-1") is ERROR
    shortages.freed("us-south-1")
    assert shortages.of("us-south-1") is None
