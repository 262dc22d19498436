# SPDX-License-Identifier: Apache-2.0
"""What pools publish of themselves (rules V): a launcher with the OpenStack driver and a simulated cloud."""

from __future__ import annotations

from nodepool.model.pool_status import PoolStatus
from tests.support.openstack_place import Place
from tests.support.pool_status import pool_status
from tests.support.wait import wait_for


def test_limits_and_waiting_requests(place: Place) -> None:
    """V-1, V-2: state, limits by scope, and why requests wait."""
    place.pool["max-servers"] = 1
    place.launch()
    ids = [place.znodes.submit(["small"]) for _ in range(3)]

    found: list[PoolStatus] = []

    def told() -> bool:
        status = pool_status(place.znodes, "cloud-a")
        found.append(status or PoolStatus())
        return found[-1].state == "paused" and bool(found[-1].waiting)

    wait_for("the pool is full", told)
    status = found[-1]
    print(status)
    assert status.code == "room.instances"
    assert ids
