# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.kept_addresses` (IV-13)."""

from __future__ import annotations

from nodepool.driver.ibmvpc.kept_addresses import KeptAddresses
from tests.unit.driver.ibmvpc.support import floating, load, section


def kept(**pool: object) -> KeptAddresses:
    return KeptAddresses(load(section(pool=pool)))


def test_all_launchers_keep_the_same() -> None:
    """IV-13: the oldest ones, in whatever order IBM lists them."""
    public = kept(**{"public-ipv4": True, "floating-ip-pool": 1})
    assert [one.id for one in public.surplus([floating(3), floating(1), floating(2)])] == ["fip-2", "fip-3"]
    assert public.surplus([]) == []


def test_pool_that_keeps_none() -> None:
    """IV-13: that is known only of a pool that is configured, and has floating IPs."""
    one = floating(1)
    assert kept(**{"public-ipv4": True, "floating-ip-pool": 0}).none(one)
    assert not kept(**{"public-ipv4": True, "floating-ip-pool": 2}).none(one)
    assert kept(**{"public-ipv4": True, "floating-ip-pool": 2}).of(one) == 2
    of_no_pool = floating(1, group="another")
    assert not kept(**{"public-ipv4": True, "floating-ip-pool": 0}).none(of_no_pool)
    assert kept(**{"public-ipv4": True, "floating-ip-pool": 2}).of(of_no_pool) == 0
