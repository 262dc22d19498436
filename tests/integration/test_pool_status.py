# SPDX-License-Identifier: Apache-2.0
"""What pools of clouds publish of themselves (rules W): a launcher with the OpenStack driver and a simulated cloud."""

from __future__ import annotations

import pytest

from nodepool.clock import wall_time
from nodepool.launcher import status
from tests.support.openstack_place import Place
from tests.support.pool_status import until


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher looks at its pools more often than it does else."""
    for name in ("LOOK_SECONDS", "ALL_SECONDS"):
        monkeypatch.setattr(status, name, 0.1)


def test_limits(place: Place) -> None:
    """W-3: of the pool, of the provider and of the cloud, with what others use."""
    place.pool["max-servers"] = 1
    place.section["max-concurrency"] = 7
    place.launch()
    place.fulfilled(place.znodes.submit(["small"]))
    place.znodes.submit(["small"])
    told = until(place.znodes, "cloud-a", lambda told: told.state == "paused" and told.launches.ok_15m == 1)
    assert (told.code, told.driver) == ("room.instances", "openstack")
    limits = {(limit.scope, limit.resource): limit for limit in told.limits}
    assert (limits["pool", "instances"].limit, limits["pool", "instances"].used) == (1, 1)
    assert (limits["provider", "launches"].limit, limits["provider", "launches"].used) == (7, 0)
    cores = limits["cloud", "cores"]
    assert (cores.used, cores.others) == (1, 0)
    assert cores.limit is not None
    assert cores.asked_at is not None
    assert wall_time() - 600 < cores.asked_at <= wall_time()


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        ({"min-ram": 10**9}, "label.broken", "no flavor"),
        ({"cloud-image": "nothing"}, "image.missing", "the cloud has no usable image"),
    ],
    ids=["flavor", "image"],
)
def test_label_that_cannot_work(place: Place, change: dict[str, object], code: str, text: str) -> None:
    """W-4, J-3: the cause is told until it is mended, also when nobody asks; requests are declined with it."""
    place.section["cloud-images"].append({"name": "nothing"})
    place.label.update(change)
    place.launch()
    place.failed(place.znodes.submit(["small"]))
    found = until(place.znodes, "cloud-a", lambda told: "small" in told.labels).labels["small"]
    assert (found.code, text in found.text) == (code, True)
    assert wall_time() - 600 < found.since <= wall_time()
    (declined,) = until(place.znodes, "cloud-a", lambda told: bool(told.declined)).declined
    assert declined.text.endswith(f"; small: {found.text}")


def test_circuit_breaker(place: Place) -> None:
    """W-2: since when it is open, why, and when the cloud is asked again."""
    place.launch()
    until(place.znodes, "cloud-a", lambda told: told.state == "running")
    begun = wall_time()
    place.simulator.change(errors=[{"operation": "*", "kind": "503"}])
    request = place.znodes.submit(["small"])
    told = until(place.znodes, "cloud-a", lambda told: told.state == "unavailable")
    assert told.code == "provider.circuit-open"
    assert told.text is not None
    assert "503" in told.text
    assert begun <= told.since <= wall_time()
    assert told.next is not None
    assert told.next > told.since
    later = until(place.znodes, "cloud-a", lambda again: again.next is not None and again.next > (told.next or 0))
    assert later.since == told.since
    place.simulator.change(errors=[])
    place.fulfilled(request)
    told = until(place.znodes, "cloud-a", lambda told: told.state == "running")
    assert (told.code, told.text, told.next) == (None, None, None)
    assert told.since > later.since
