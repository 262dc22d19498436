# SPDX-License-Identifier: Apache-2.0
"""Limits in status records (W-3)."""

from __future__ import annotations

import math

from nodepool.driver.framework.limit_status import CloudLimits, limits_of, limits_of_cloud
from nodepool.model.pool_status import LimitStatus
from nodepool.model.quota import QuotaInformation


def test_configured_limits() -> None:
    """W-3: what has no limit is left out."""
    limits = QuotaInformation(instances=20, default=math.inf, gpus=4)
    used = QuotaInformation(instances=18, cores=36)
    assert limits_of("pool", limits, used) == [
        LimitStatus("pool", "gpus", 4, 0),
        LimitStatus("pool", "instances", 20, 18),
    ]


def test_limits_of_a_cloud() -> None:
    """W-3: with what others use, and when the cloud was asked."""
    told = CloudLimits(QuotaInformation(cores=80, default=math.inf), QuotaInformation(cores=8), 1763809101.12345)
    assert limits_of_cloud(told, QuotaInformation(cores=72)) == [
        LimitStatus("cloud", "cores", 80, 72, 8, 1763809101.123)
    ]
