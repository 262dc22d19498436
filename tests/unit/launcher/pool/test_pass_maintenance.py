# SPDX-License-Identifier: Apache-2.0
"""What a pool does with requests that an operator holds back, by single passes of its worker (rules MT)."""

from __future__ import annotations

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.fake.provider import FakeProvider
from nodepool.launcher.pool.worker import PoolWorker
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.zk.maintenance_store import MaintenanceStore
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Still

PROVIDER = Maintenance("provider", "one", Mode.PAUSE)
POOL = Maintenance("pool", "one/main", Mode.DRAIN)
LABEL = Maintenance("label", "small", Mode.PAUSE)
BACKING = Reason(ReasonCode.BACKING_HELD, "its cloud is paused")


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud) -> StillLauncher:
    return still([fake_provider("one", cloud=cloud_name)], labels={"small": {}, "big": {}})


def hold(launcher: StillLauncher, *records: Maintenance) -> None:
    """Store records in place of all others, and wait until the launcher knows them."""
    store, cache = MaintenanceStore(launcher.nodepool.client), launcher.nodepool.cache.maintenance
    for kind, name in store.read_all():
        store.remove(kind, name)
    for record in records:
        store.put(record)
    wait_for("they are known", lambda: sorted(map(repr, cache.snapshot().values())) == sorted(map(repr, records)))


def codes(worker: PoolWorker) -> list[ReasonCode]:
    return [waiting.reason.code for _, _, waiting in worker.desk.snapshot().kinds]


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (PROVIDER, ReasonCode.PROVIDER_PAUSED),
        (POOL, ReasonCode.POOL_DRAINING),
        (LABEL, ReasonCode.LABEL_PAUSED),
    ],
)
def test_nothing_is_taken_and_nothing_fails(
    launcher: StillLauncher, znodes: PoolZnodes, cloud: FakeCloud, record: Maintenance, code: ReasonCode
) -> None:
    """MT-3, MT-4, MT-5: neither a launch nor a ready node; the request waits, and is served afterwards."""
    worker = launcher.worker()
    hold(launcher, record)
    worker.run_once()
    znodes.add_node("ready", type=["small"], provider="one", pool="main")
    request_id = znodes.submit(["small"])
    launcher.knows_requests(1)
    launcher.settle()
    worker.run_once()
    assert codes(worker) == [code]
    stored = znodes.request(request_id) or {}
    assert (stored["state"], stored.get("declined_by")) == ("requested", None)
    assert cloud.calls["create"] == 0
    hold(launcher)
    launcher.passes(worker, "it is served", lambda: znodes.request_state(request_id) == "fulfilled")


def test_others_see_that_it_is_paused(launcher: StillLauncher, znodes: PoolZnodes) -> None:
    """MT-4: also launchers of older releases serve the requests then."""
    worker = launcher.worker()
    hold(launcher, LABEL)
    worker.run_once()
    assert [pool["paused"] for pool in znodes.pools()] == [False], "its other labels are served"
    hold(launcher, PROVIDER)
    worker.run_once()
    assert [pool["paused"] for pool in znodes.pools()] == [True]
    hold(launcher)
    worker.run_once()
    assert [pool["paused"] for pool in znodes.pools()] == [False]


def test_driver_that_would_decline_is_not_asked(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MT-3: a cloud that is being changed may have no images for an hour."""
    monkeypatch.setattr(FakeProvider, "labelReady", lambda provider, label: False)
    worker = launcher.worker()
    hold(launcher, PROVIDER)
    worker.run_once()
    request_id = znodes.submit(["small"])
    launcher.knows_requests(1)
    worker.run_once()
    assert codes(worker) == [ReasonCode.PROVIDER_PAUSED]
    assert znodes.request_state(request_id) == "requested"


def test_what_nobody_has_is_declined(launcher: StillLauncher, znodes: PoolZnodes) -> None:
    """MT-3: it would fail without maintenance, too."""
    worker = launcher.worker()
    hold(launcher, PROVIDER)
    worker.run_once()
    request_id = znodes.submit(["unknown"])
    launcher.knows_requests(1)
    worker.run_once()
    assert znodes.request_state(request_id) == "failed"


@pytest.mark.parametrize("record", [PROVIDER, LABEL])
def test_request_that_waits_for_room_is_given_back(
    still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, record: Maintenance
) -> None:
    """MT-6: another pool may have room for it; what is launched already goes on."""
    launcher = still([fake_provider("one", cloud=cloud_name, pool_max_servers=1)])
    worker = launcher.worker()
    first, second = znodes.submit(["small"]), znodes.submit(["small"])
    launcher.knows_requests(2)
    launcher.passes(worker, "one waits for room", lambda: worker.desk.paused)
    hold(launcher, record)
    launcher.passes(worker, "it is given back", lambda: znodes.request_state(second) == "requested")
    launcher.passes(worker, "the other one is served", lambda: znodes.request_state(first) == "fulfilled")
    assert not worker.handlers
    assert (znodes.request(second) or {})["declined_by"] == []
    launcher.passes(worker, "it says why", lambda: codes(worker) == [maintenance_code(record)])


def maintenance_code(record: Maintenance) -> ReasonCode:
    return ReasonCode.PROVIDER_PAUSED if record.kind == "provider" else ReasonCode.LABEL_PAUSED


def test_no_ready_node_is_evicted(still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud) -> None:
    """MT-6: not for a request that is not to be served here."""
    launcher = still([fake_provider("one", ("small", "big"), cloud=cloud_name, pool_max_servers=1)])
    worker = launcher.worker()
    hold(launcher, PROVIDER)
    worker.run_once()
    node_id = znodes.add_node("ready", type=["big"], provider="one", pool="main")
    znodes.submit(["small"])
    launcher.knows_requests(1)
    launcher.settle()
    for _ in range(3):
        worker.run_once()
    assert (znodes.node(node_id) or {})["state"] == "ready"


def test_label_whose_nodes_need_what_is_out_of_service(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MT-11: it waits, ready nodes included; others see that the pool is paused; other labels are served."""
    monkeypatch.setattr(FakeProvider, "heldLabels", lambda provider, pool_name: {"small": BACKING})
    worker = launcher.worker()
    worker.run_once()
    assert [pool["paused"] for pool in znodes.pools()] == [True]
    znodes.add_node("ready", type=["small"], provider="one", pool="main")
    request_id = znodes.submit(["small"])
    launcher.knows_requests(1)
    launcher.settle()
    worker.run_once()
    assert codes(worker) == [ReasonCode.BACKING_HELD]
    assert znodes.request_state(request_id) == "requested"
    monkeypatch.setattr(FakeProvider, "heldLabels", lambda provider, pool_name: {"big": BACKING})
    launcher.passes(worker, "it is served", lambda: znodes.request_state(request_id) == "fulfilled")


def test_launches_are_told_not_to_wait(
    still: Still, znodes: PoolZnodes, cloud_name: str, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MT-6: as long as they run, also those of a request that is to be given back; what goes on is finished."""
    told: list[list[str]] = []
    monkeypatch.setattr(FakeProvider, "stopWaiting", lambda provider, node_ids: told.append(sorted(node_ids)))
    cloud.set(hang=True)
    launcher = still([fake_provider("one", cloud=cloud_name, pool_max_servers=2)])
    worker = launcher.worker()
    requests = [znodes.submit(["small"]), znodes.submit(["small", "small"])]
    launcher.knows_requests(2)
    launcher.passes(worker, "two are launched", lambda: len(cloud.instances()) == 2)
    assert not told
    hold(launcher, PROVIDER)
    worker.run_once()
    building = sorted(znodes.nodes("building"))
    assert sorted(node_id for node_ids in told for node_id in node_ids) == building
    assert [len(node_ids) for node_ids in told] == [1, 1]
    worker.run_once()
    assert len(told) == 4
    cloud.set(hang=False)
    launcher.passes(worker, "one is served", lambda: znodes.request_state(requests[0]) == "fulfilled")
    launcher.passes(worker, "one is given back", lambda: znodes.request_state(requests[1]) == "requested")
    told.clear()
    worker.run_once()
    assert not told
