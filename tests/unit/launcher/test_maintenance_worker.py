# SPDX-License-Identifier: Apache-2.0
"""Records that begin and end, and a launcher that is drained, by single passes of the worker (rules MT)."""

from __future__ import annotations

import socket
import time

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.launcher.maintenance_worker import DRAIN_LOOK_SECONDS, MaintenanceWorker
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.plan.maintenance_effect import CLOCK_SKEW_SECONDS
from nodepool.zk.maintenance_store import MaintenanceStore
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Still


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud) -> StillLauncher:
    return still([fake_provider("one", cloud=cloud_name)])


@pytest.fixture
def worker(launcher: StillLauncher) -> MaintenanceWorker:
    return launcher.nodepool.maintenance_worker.current


def put(launcher: StillLauncher, record: Maintenance) -> MaintenanceStore:
    """Store a record, and wait until the launcher knows it."""
    store = MaintenanceStore(launcher.nodepool.client)
    store.put(record)
    key = (record.kind, record.name)
    wait_for("it is known", lambda: launcher.nodepool.cache.maintenance.snapshot().get(key) == record)
    return store


def test_told_once(launcher: StillLauncher, worker: MaintenanceWorker, caplog: pytest.LogCaptureFixture) -> None:
    """MT-2: when it begins and when it is over."""
    caplog.set_level("INFO")
    assert worker.run_once() is None
    store = put(launcher, Maintenance("provider", "one", Mode.PAUSE, "network", "alice@desk"))
    worker.run_once()
    worker.run_once()
    store.remove("provider", "one")
    wait_for("it is gone", lambda: not launcher.nodepool.cache.maintenance.snapshot())
    worker.run_once()
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Maintenance")]
    text = "provider one is paused by alice@desk: network"
    assert told == [f"Maintenance: {text}", f"Maintenance is over: {text}"]


def test_end_by_the_clock(
    launcher: StillLauncher, worker: MaintenanceWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MT-9: the worker wakes when a record is over, and removes it a moment later."""
    now = time.time()
    monkeypatch.setattr(worker, "_clock", lambda: now)
    put(launcher, Maintenance("label", "small", Mode.PAUSE, until=now + 60))
    assert worker.run_once() == pytest.approx(60)
    now += 60
    woken = launcher.worker()
    woken._event.clear()
    assert worker.run_once() == pytest.approx(CLOCK_SKEW_SECONDS)
    assert woken._event.is_set(), "pools serve the label again at once"
    assert znodes.children("/nodepool/maintenance/label") == ["small"]
    now += CLOCK_SKEW_SECONDS
    worker.run_once()
    assert znodes.children("/nodepool/maintenance/label") == []


def test_drained_when_nothing_is_served_any_more(
    launcher: StillLauncher, worker: MaintenanceWorker, znodes: PoolZnodes, cloud: FakeCloud
) -> None:
    """MT-8: the launcher ends when its boots are finished, not before."""
    pool = launcher.worker()
    cloud.set(hang=True)
    request_id = znodes.submit(["small"])
    launcher.passes(pool, "it is launched", lambda: pool.handlers)
    put(launcher, Maintenance("launcher", socket.gethostname(), Mode.DRAIN))
    assert worker.run_once() == DRAIN_LOOK_SECONDS
    launcher.passes(pool, "the pool knows", lambda: pool.context.hold)
    other = znodes.submit(["small"])
    launcher.knows_requests(2)
    pool.run_once()
    worker.run_once()
    nodepool = launcher.nodepool
    assert (nodepool.finished, nodepool.loop.stopping.is_set()) == (False, False)
    cloud.set(hang=False)
    cloud.wake()
    launcher.passes(pool, "it is served", lambda: znodes.request_state(request_id) == "fulfilled" and pool.drained)
    worker.run_once()
    assert (nodepool.finished, nodepool.loop.stopping.is_set()) == (True, True)
    assert znodes.request_state(other) == "requested"


def test_pool_that_has_not_seen_it_yet_is_not_drained(launcher: StillLauncher, worker: MaintenanceWorker) -> None:
    """MT-8: it may be taking a request just now."""
    put(launcher, Maintenance("launcher", socket.gethostname(), Mode.DRAIN))
    worker.run_once()
    assert not launcher.nodepool.finished
    launcher.worker()
    worker.run_once()
    assert launcher.nodepool.finished


def test_drain_that_is_taken_back(launcher: StillLauncher, worker: MaintenanceWorker) -> None:
    store = put(launcher, Maintenance("launcher", socket.gethostname(), Mode.DRAIN))
    assert worker.run_once() == DRAIN_LOOK_SECONDS
    store.remove("launcher", socket.gethostname())
    wait_for("it is gone", lambda: not launcher.nodepool.cache.maintenance.snapshot())
    assert worker.run_once() is None
    pool = launcher.worker()
    pool.run_once()
    assert (pool.context.hold, launcher.nodepool.finished) == (None, False)
