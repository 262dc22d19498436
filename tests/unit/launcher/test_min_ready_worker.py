# SPDX-License-Identifier: Apache-2.0
"""Nodes that are kept ready, by single passes of the worker (rules M)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kazoo.recipe.lock import Lock

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.fake.provider import FakeProvider
from nodepool.exceptions import ZKConnectionError
from nodepool.launcher import min_ready_worker
from nodepool.launcher.min_ready_worker import MinReadyWorker
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.zk.maintenance_store import MaintenanceStore
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import REQUESTS, PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Still


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(min_ready_worker, "PACE_SECONDS", 0.0)
    monkeypatch.setattr(min_ready_worker, "LINGER_SECONDS", 0.0)


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud) -> StillLauncher:
    return still([fake_provider("one", cloud=cloud_name)], labels={"small": {"min-ready": 2}})


@pytest.fixture
def worker(launcher: StillLauncher) -> MinReadyWorker:
    return launcher.nodepool.min_ready.current


def requests(znodes: PoolZnodes) -> list[dict[str, Any]]:
    return [znodes.request(request_id) or {} for request_id in znodes.children(REQUESTS)]


def test_requests(launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes) -> None:
    """M-1, M-2: one request for each missing node, ephemeral, of the lowest priority, for new nodes."""
    worker.run_once()
    found = requests(znodes)
    assert [(r["node_types"], r["reuse"], r["requestor"]) for r in found] == [
        (["small"], False, "NodePool:min-ready")
    ] * 2
    assert all(request["event_id"] for request in found)
    assert all(request_id.startswith("900-") for request_id in znodes.children(REQUESTS))
    assert all(znodes.kazoo.get(f"{REQUESTS}/{i}")[1].ephemeralOwner for i in znodes.children(REQUESTS))


@pytest.mark.parametrize("kind_and_name", [("provider", "one"), ("pool", "one/main"), ("label", "small")])
def test_nothing_is_requested_for_what_an_operator_holds_back(
    launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes, kind_and_name: tuple[str, str]
) -> None:
    """MT-7"""
    maintenance = launcher.nodepool.cache.maintenance
    store = MaintenanceStore(launcher.nodepool.client)
    store.put(Maintenance(*kind_and_name, Mode.PAUSE))
    wait_for("it is known", maintenance.snapshot)
    worker.run_once()
    assert requests(znodes) == []
    store.remove(*kind_and_name)
    wait_for("its end is known", lambda: not maintenance.snapshot())
    launcher.nodepool._router.hold_changed()
    worker.run_once()
    assert len(requests(znodes)) == 2


def test_nothing_is_requested_whose_nodes_need_what_is_out_of_service(
    launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MT-7, MT-11: the driver says so."""
    reason = Reason(ReasonCode.BACKING_HELD, "its cloud is paused")
    monkeypatch.setattr(FakeProvider, "heldLabels", lambda provider, pool_name: {"small": reason})
    worker.run_once()
    assert requests(znodes) == []
    monkeypatch.setattr(FakeProvider, "heldLabels", lambda provider, pool_name: {"big": reason})
    worker.changed()
    worker.run_once()
    assert len(requests(znodes)) == 2


def test_pool_that_does_not_know_its_provider(
    launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes
) -> None:
    """M-3: pools of other people's drivers need no ``provider``."""
    for provider in launcher.nodepool.providers.running.values():
        for pool in provider.provider.pools.values():
            del pool.provider
    worker.run_once()
    assert len(requests(znodes)) == 2


def test_open_requests_count(launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes) -> None:
    """M-1, M-6: while they are open no more are made."""
    for _ in range(3):
        worker.changed()
        worker.run_once()
        launcher.settle()
    assert len(requests(znodes)) == 2


def test_life(launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes, cloud: FakeCloud) -> None:
    """M-4: their nodes are free for everybody, the requests go, and that is it."""
    pool = launcher.worker()
    worker.run_once()
    launcher.passes(pool, "served", lambda: {request["state"] for request in requests(znodes)} == {"fulfilled"})
    launcher.passes(worker, "no request is left", lambda: not requests(znodes))
    assert len(znodes.free_nodes()) == 2
    for _ in range(3):
        worker.changed()
        launcher.settle()
        worker.run_once()
    assert requests(znodes) == []
    assert cloud.calls["create"] == 2


def test_failed_request(
    launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M-4: deleted, and tried again after a pause."""
    monkeypatch.setattr(min_ready_worker, "FAILED_SECONDS", 0.2)
    pool = launcher.worker()
    with monkeypatch.context() as patch:
        patch.setattr(FakeProvider, "errorLabels", lambda provider: ["small"])
        worker.run_once()
        first = set(znodes.children(REQUESTS))
        launcher.passes(pool, "refused", lambda: {request["state"] for request in requests(znodes)} == {"failed"})
        launcher.passes(worker, "no request is left", lambda: not requests(znodes))
    launcher.passes(worker, "tried again", lambda: len(requests(znodes)) == 2)
    assert not first & set(znodes.children(REQUESTS))


def test_label_that_nobody_can_build(
    launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M-3: only when some pool could launch it; a driver's error is a no."""
    with monkeypatch.context() as patch:
        patch.setattr(FakeProvider, "labelReady", lambda provider, label: False)
        worker.run_once()
        patch.setattr(FakeProvider, "labelReady", lambda provider, label: 1 / 0)
        worker.changed()
        worker.run_once()
        assert requests(znodes) == []
    worker.changed()
    worker.run_once()
    assert len(requests(znodes)) == 2


def test_no_min_ready(still: Still, cloud_name: str, cloud: FakeCloud, znodes: PoolZnodes) -> None:
    """M-5: 0 or less creates nothing."""
    launcher = still(
        [fake_provider("one", ("a", "b"), cloud=cloud_name)], labels={"a": {"min-ready": 0}, "b": {"min-ready": -1}}
    )
    launcher.nodepool.min_ready.current.run_once()
    assert requests(znodes) == []


def test_not_our_turn(launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes) -> None:
    """M-6: while another launcher counts and creates, this one waits, and counts again soon."""
    lock = Lock(znodes.kazoo, "/nodepool/elections/min-ready")
    assert lock.acquire(timeout=5)
    worker.run_once()
    assert requests(znodes) == []
    lock.release()
    worker.run_once()
    assert len(requests(znodes)) == 2
    assert znodes.children("/nodepool/elections/min-ready") == []


def test_requests_of_other_launchers_count(launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes) -> None:
    """M-6"""
    for state in ("requested", "pending", "failed"):
        znodes.submit(["small"], priority="900", requestor="NodePool:min-ready", state=state)
    launcher.settle()
    worker.run_once()
    assert len(requests(znodes)) == 3


def test_pace(
    launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand changes a second do not wake the worker a thousand times; none of them is forgotten."""
    monkeypatch.setattr(min_ready_worker, "PACE_SECONDS", 1000.0)
    assert worker.run_once() == 1000.0
    worker._event.clear()
    worker.changed()
    worker.changed("200-0000000000")
    assert not worker._event.is_set()
    wait = worker.run_once()
    assert wait is not None
    assert wait > 900
    own = znodes.children(REQUESTS)[0]
    worker.changed(own)
    assert worker._event.is_set(), "the end of our own request is seen at once"
    monkeypatch.setattr(min_ready_worker, "PACE_SECONDS", 0.0)
    counted = worker._count_by
    worker.run_once()
    assert worker._count_by > counted
    counted = worker._count_by
    worker.run_once()
    assert worker._count_by == counted, "nothing changed, nothing is counted"


def test_request_whose_creation_gave_no_answer(
    launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M-4: it has an owner, also when our server hears of it only now; one that was not made is forgotten."""
    store = launcher.nodepool.zk.storeNodeRequest

    def made_without_an_answer(request: NodeRequest, priority: str) -> None:
        znodes.submit_raw(json.dumps(request.to_dict(0.0)).encode(), priority)
        raise ZKConnectionError("no answer")

    def not_made(request: NodeRequest, priority: str) -> None:
        raise ZKConnectionError("away")

    zk = launcher.nodepool.zk
    for outcome in (made_without_an_answer, not_made):
        monkeypatch.setattr(zk, "storeNodeRequest", outcome)
        worker.changed()
        with pytest.raises(ZKConnectionError):
            worker.run_once()
    monkeypatch.setattr(zk, "storeNodeRequest", store)
    worker.changed()
    with monkeypatch.context() as unread:
        unread.setattr(launcher.nodepool.cache, "wait_settled", lambda seconds: False)
        with pytest.raises(ZKConnectionError, match="not read in time"):
            worker.run_once()
    worker.run_once()
    assert sorted(worker._own) == sorted(znodes.children(REQUESTS))
    assert len(worker._own) == 2


def test_stop(launcher: StillLauncher, worker: MinReadyWorker, znodes: PoolZnodes) -> None:
    """Its requests go with the launcher."""
    worker.run_once()
    worker.on_stop()
    assert requests(znodes) == []
