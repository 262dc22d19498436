# SPDX-License-Identifier: Apache-2.0
"""What pools of clouds publish of themselves (rules W): a launcher with the OpenStack driver and a simulated cloud."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodepool.clock import wall_time
from nodepool.launcher import status
from nodepool.model.status import PoolStatus
from tests.support.openstack_place import Place
from tests.support.pool_status import pool_status
from tests.support.wait import wait_for


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher looks at its pools more often than it does else."""
    for name in ("LOOK_SECONDS", "ALL_SECONDS"):
        monkeypatch.setattr(status, name, 0.1)


def until(place: Place, is_there: Callable[[PoolStatus], bool]) -> PoolStatus:
    """Waits for a record of the pool."""
    found: list[PoolStatus] = []

    def look() -> bool:
        told = pool_status(place.znodes, "cloud-a")
        if told is not None and is_there(told):
            found.append(told)
        return bool(found)

    wait_for("the pool tells it", look)
    return found[-1]


def test_limits(place: Place) -> None:
    """W-3: of the pool, of the provider and of the cloud, with what others use."""
    place.pool["max-servers"] = 1
    place.section["max-concurrency"] = 7
    place.launch()
    place.fulfilled(place.znodes.submit(["small"]))
    place.znodes.submit(["small"])
    told = until(place, lambda told: told.state == "paused" and told.launches.ok_15m == 1)
    assert (told.code, told.driver) == ("room.instances", "openstack")
    limits = {(limit.scope, limit.resource): limit for limit in told.limits}
    assert (limits["pool", "instances"].limit, limits["pool", "instances"].used) == (1, 1)
    assert (limits["provider", "launches"].limit, limits["provider", "launches"].used) == (7, 0)
    cores = limits["cloud", "cores"]
    assert (cores.used, cores.others) == (1, 0)
    assert cores.limit is not None
    assert cores.asked_at is not None
    assert wall_time() - 600 < cores.asked_at <= wall_time()


def test_label_without_a_flavor(place: Place) -> None:
    """W-4: the cause is told until it is mended, also when nobody asks for the label."""
    place.label["min-ram"] = 10**9
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    told = until(place, lambda told: "small" in told.labels)
    assert told.labels["small"].code == "label.broken"
    assert "no flavor" in told.labels["small"].text
    assert wall_time() - 600 < told.labels["small"].since <= wall_time()
    (declined,) = until(place, lambda told: bool(told.declined)).declined
    assert "no flavor" in declined.text


def test_label_without_an_image(place: Place) -> None:
    """W-4, J-3: the request is declined with what the label lacks."""
    place.section["cloud-images"][0]["image-name"] = "nothing"
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    told = until(place, lambda told: "small" in told.labels)
    assert told.labels["small"].code == "image.missing"
    assert told.labels["small"].text.startswith("the cloud has no usable image")
    (declined,) = until(place, lambda told: bool(told.declined)).declined
    assert declined.text.endswith(f"label(s) small; small: {told.labels['small'].text}")


def test_circuit_breaker(place: Place) -> None:
    """W-2: since when it is open, why, and when the cloud is asked again."""
    place.launch()
    until(place, lambda told: told.state == "running")
    begun = wall_time()
    place.simulator.change(errors=[{"operation": "*", "kind": "503"}])
    request = place.znodes.submit(["small"])
    told = until(place, lambda told: told.state == "unavailable")
    assert told.code == "provider.circuit-open"
    assert told.text is not None
    assert "503" in told.text
    assert begun <= told.since <= wall_time()
    assert told.next is not None
    assert told.next > told.since
    later = until(place, lambda again: again.next is not None and again.next > (told.next or 0))
    assert later.since == told.since
    place.simulator.change(errors=[])
    place.fulfilled(request)
    told = until(place, lambda told: told.state == "running")
    assert (told.code, told.text, told.next) == (None, None, None)
    assert told.since > later.since
