# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.framework.policies`; what the gateway makes of them is in test_gateway."""

from __future__ import annotations

from nodepool.driver.framework.policies import Raises, no_limits, one_instance
from nodepool.model.quota import QuotaInformation


def test_text_of_a_policy() -> None:
    assert Raises("declined").text == "declined"
    assert Raises("declined", "no limits", no_limits).text == "declined; not implemented: no limits"
    assert Raises("declined").without is None


def test_without_quota() -> None:
    """Q-2: however much is used, there is room; and a node uses one instance."""
    left = no_limits()
    left.subtract(QuotaInformation(cores=10**9, instances=10**9, ram=10**9, gpus=10**9))
    assert left.non_negative()
    assert one_instance().get_resources() == {"cores": 0, "instances": 1, "ram": 0}
