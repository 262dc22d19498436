# SPDX-License-Identifier: Apache-2.0
"""The periodic sweeps by their single pass (rules C)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from kazoo.recipe.lock import Lock

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.exceptions import ZKConnectionError
from nodepool.launcher import deletion
from nodepool.launcher.deletion import LATER_SECONDS, LOST_SECONDS, SOON_SECONDS, SWEEP_SECONDS, CleanupWorker
from nodepool.launcher.pool.intake import START_SECONDS
from nodepool.plan.nodes import STALLED_SECONDS
from nodepool.plan.triage import PoolInfo
from tests.support.local_launcher import fake_provider
from tests.support.manual_clock import ManualClock, monotonic_clock
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.unit.launcher.conftest import Still


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud) -> StillLauncher:
    return still([fake_provider("one", cloud=cloud_name)], labels={"small": {"max-ready-age": 500}}, max_hold_age=1000)


@pytest.fixture
def worker(launcher: StillLauncher) -> CleanupWorker:
    return launcher.nodepool.cleanup.current


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    return monotonic_clock(monkeypatch, deletion, now=time.monotonic())


def test_lost_request(launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes) -> None:
    """C-4: ``requested`` again without nodes; its `init` nodes are deleted, others are free, locked ones stay."""
    request_id = znodes.submit(["small"], state="pending", nodes=["x"], declined_by=["somebody"])
    init, ready = (znodes.add_node(state, allocated_to=request_id) for state in ("init", "ready"))
    locked = znodes.add_node("building", allocated_to=request_id)
    lock = Lock(znodes.kazoo, f"/nodepool/nodes/{locked}/lock")
    assert lock.acquire(timeout=5)
    launcher.settle()
    worker.reset_lost_requests()
    request = znodes.request(request_id)
    assert request is not None
    assert (request["state"], request["nodes"], request["declined_by"]) == ("requested", [], ["somebody"])
    found = [znodes.node(node_id) or {} for node_id in (init, ready, locked)]
    assert [(node["state"], node["allocated_to"]) for node in found] == [
        ("deleting", None),
        ("ready", None),
        ("building", request_id),
    ]
    lock.release()


def test_request_that_somebody_serves(launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes) -> None:
    """C-4: not while its lock is held, by others or by us; other states never."""
    pending = znodes.submit(["small"], state="pending")
    lock = Lock(znodes.kazoo, f"/nodepool/requests-lock/{pending}")
    assert lock.acquire(timeout=5)
    others = [znodes.submit(["small"], state=state) for state in ("fulfilled", "failed")]
    launcher.settle()
    worker.reset_lost_requests()
    assert [znodes.request_state(i) for i in (pending, *others)] == ["pending", "fulfilled", "failed"]
    lock.release()


def test_node_of_a_lost_request_is_deleted_meanwhile(
    launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes, clock: ManualClock
) -> None:
    """C-4: the request does not wait for the next minute because of that."""
    request_id = znodes.submit(["small"], state="pending")
    node_id = znodes.add_node("building", allocated_to=request_id)
    launcher.settle()
    worker.run_once()
    request_id = znodes.submit(["small"], state="pending")
    node_id = znodes.add_node("building", allocated_to=request_id)
    launcher.settle()
    cached = launcher.nodepool.cache.nodes.get(node_id)
    assert cached is not None
    right, cached.version = cached.version, 99
    worker.reset_lost_requests()
    assert znodes.request_state(request_id) == "pending"
    cached.version = right
    clock.pass_seconds(LOST_SECONDS)
    worker.run_once()
    assert znodes.request_state(request_id) == "requested"


def test_launcher_that_went(
    launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes, clock: ManualClock
) -> None:
    """C-4: its requests are looked at right away, and all that it may have left a moment later."""
    worker.run_once()
    request_id = znodes.submit(["small"], state="pending")
    empty = znodes.create_node(b"")
    launcher.settle()
    assert (worker.run_once() or 0) > SOON_SECONDS
    worker.sweep_soon()
    assert worker.run_once() == pytest.approx(LOST_SECONDS)
    clock.pass_seconds(LOST_SECONDS)
    assert worker.run_once() == pytest.approx(SOON_SECONDS - LOST_SECONDS)
    assert znodes.request_state(request_id) == "requested"
    assert znodes.kazoo.exists(f"/nodepool/nodes/{empty}")
    clock.pass_seconds(SOON_SECONDS - LOST_SECONDS)
    worker.run_once()
    assert not znodes.kazoo.exists(f"/nodepool/nodes/{empty}")


def test_launcher_that_stops_slowly(
    launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes, clock: ManualClock
) -> None:
    """C-4: it has left the registry, but keeps its locks for some seconds: its requests are looked at again."""
    worker.run_once()
    request_id = znodes.submit(["small"], state="pending")
    lock = Lock(znodes.kazoo, f"/nodepool/requests-lock/{request_id}")
    assert lock.acquire(timeout=5)
    launcher.settle()
    worker.launcher_went()
    clock.pass_seconds(SOON_SECONDS)
    worker.run_once()
    assert znodes.request_state(request_id) == "pending"
    lock.release()
    launcher.settle()
    clock.pass_seconds(LATER_SECONDS[0] - SOON_SECONDS)
    worker.run_once()
    assert znodes.request_state(request_id) == "requested"
    clock.pass_seconds(LATER_SECONDS[-1] - LATER_SECONDS[0])
    worker.run_once()
    assert (worker.run_once() or 0) > SOON_SECONDS


def test_launcher_that_goes_during_a_look(worker: CleanupWorker, clock: ManualClock) -> None:
    """C-4: what is asked for by another thread, at whichever moment of a look, is not forgotten."""
    worker.run_once()

    class Passed(float):
        def __gt__(self, other: float) -> bool:
            worker.launcher_went()
            return False

    worker._later = [Passed(0.0)]
    worker.reset_lost_requests()
    assert worker.run_once() == pytest.approx(LOST_SECONDS)
    clock.pass_seconds(SOON_SECONDS)
    worker.run_once()
    assert worker.run_once() == pytest.approx(LATER_SECONDS[0] - SOON_SECONDS)


def test_nodes_that_a_lost_launcher_gathered(
    launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes, clock: ManualClock
) -> None:
    """C-4: somebody serves their request without them. Not at the first look; nothing else is swept for that."""
    served = znodes.submit(["small"], state="requested")
    worker.run_once()
    init, ready = (znodes.add_node(state, allocated_to=served) for state in ("init", "ready"))
    lock = Lock(znodes.kazoo, f"/nodepool/requests-lock/{served}")
    assert lock.acquire(timeout=5)
    launcher.settle()
    clock.pass_seconds(SWEEP_SECONDS)
    wait = worker.run_once()
    assert wait is not None
    assert 0 < wait <= SOON_SECONDS
    assert [(znodes.node(i) or {})["allocated_to"] for i in (init, ready)] == [served, served]
    old = znodes.add_node("ready", state_time=1.0)
    launcher.settle()
    clock.pass_seconds(SOON_SECONDS)
    wait = worker.run_once()
    found = [znodes.node(i) or {} for i in (init, ready, old)]
    assert [(node["state"], node.get("allocated_to")) for node in found] == [
        ("deleting", None),
        ("ready", None),
        ("ready", None),
    ]
    assert wait is not None
    assert wait > SOON_SECONDS, "the next sweep"
    lock.release()


def test_nodes_of_a_launcher_that_stalls(
    launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes, clock: ManualClock
) -> None:
    """C-4, C-10: old releases store a node before they lock it, and unlock it before the request is fulfilled."""
    served = znodes.submit(["small"], state="pending")
    lock = Lock(znodes.kazoo, f"/nodepool/requests-lock/{served}")
    assert lock.acquire(timeout=5)
    nodes = [znodes.add_node(state, allocated_to=served) for state in ("init", "ready")]
    launcher.settle()
    for _ in range(3):
        worker.free_orphans()
        clock.pass_seconds(SWEEP_SECONDS)
    found = [znodes.node(node_id) or {} for node_id in nodes]
    assert [(node["state"], node["allocated_to"]) for node in found] == [("init", served), ("ready", served)]
    lock.release()
    worker.free_orphans()
    found = [znodes.node(node_id) or {} for node_id in nodes]
    assert [(node["state"], node["allocated_to"]) for node in found] == [("deleting", None), ("ready", None)]


def test_nodes_that_a_lost_launcher_wrote_too_late(
    launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes, clock: ManualClock
) -> None:
    """C-4: its session was lost, and it did not know; somebody else held the request already. Not for ever."""
    served = znodes.submit(["small"], state="pending")
    lock = Lock(znodes.kazoo, f"/nodepool/requests-lock/{served}")
    assert lock.acquire(timeout=5)
    ready = znodes.add_node("ready", allocated_to=served)
    launcher.settle()
    worker.free_orphans()
    clock.pass_seconds(STALLED_SECONDS - 1)
    worker.free_orphans()
    assert (znodes.node(ready) or {})["allocated_to"] == served
    clock.pass_seconds(1)
    worker.free_orphans()
    assert (znodes.node(ready) or {})["allocated_to"] is None
    lock.release()


def test_nodes_that_are_nobody_elses(
    launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes, clock: ManualClock
) -> None:
    """C-4: one that is locked, that Zuul is about to take, that changed, or whose request is fulfilled now."""
    served, fulfilled, ended = (znodes.submit(["small"], state=i) for i in ("pending", "fulfilled", "pending"))
    request_locks = [Lock(znodes.kazoo, f"/nodepool/requests-lock/{i}") for i in (served, ended)]
    taken, offered, changed, given = (
        znodes.add_node("ready", allocated_to=i) for i in (served, fulfilled, served, ended)
    )
    locks = [*request_locks, Lock(znodes.kazoo, f"/nodepool/nodes/{taken}/lock")]
    assert all(lock.acquire(timeout=5) for lock in locks)
    launcher.settle()
    worker.free_orphans()
    znodes.change_node(changed, comment="about to be used")
    launcher.settle()
    stale = launcher.nodepool.cache.requests.get(ended)
    assert stale is not None
    znodes.kazoo.set(
        f"/nodepool/requests/{ended}", json.dumps({"state": "fulfilled", "node_types": ["small"]}).encode()
    )
    launcher.settle()
    launcher.nodepool.cache.requests._records[ended] = stale  # the cache is a moment behind
    clock.pass_seconds(SOON_SECONDS)
    worker.free_orphans()
    found = [(znodes.node(i) or {})["allocated_to"] for i in (taken, offered, changed, given)]
    assert found == [served, fulfilled, served, ended]
    for lock in locks:
        lock.release()


def test_sweep_is_made_up_for(
    launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-4: one that a lost connection interrupted comes again soon, not a minute later."""

    def away() -> None:
        raise ZKConnectionError("away")

    monkeypatch.setattr(worker, "remove_empty_nodes", away)
    with pytest.raises(ZKConnectionError):
        worker.run_once()
    wait = worker.run_once()
    assert wait is not None
    assert 0 < wait <= SOON_SECONDS


def test_tasks_are_independent(
    launcher: StillLauncher,
    worker: CleanupWorker,
    znodes: PoolZnodes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """C-1"""
    for name in ("reset_lost_requests", "remove_lock_dirs"):

        def fail() -> None:
            raise RuntimeError("no way")

        fail.__name__ = name
        monkeypatch.setattr(worker, name, fail)
    empty, old = znodes.create_node(b""), znodes.add_node("ready", state_time=1.0)
    launcher.settle()
    worker.sweep()
    assert "cleanup task reset_lost_requests" in caplog.text
    assert "cleanup task remove_lock_dirs" in caplog.text
    assert not znodes.kazoo.exists(f"/nodepool/nodes/{empty}")
    assert (znodes.node(old) or {})["state"] == "deleting"


def test_refused_by_all_that_are_left(
    launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-15: the pool that had not declined is gone for good: nobody would ever look at the request again."""
    pool = launcher.worker()
    refused, open_one = (znodes.submit(["small"], declined_by=declined) for declined in ([pool.launcher_id], ["x"]))
    away = PoolInfo("away", "two", frozenset({"small"}), 100, paused=False)
    absent: list[PoolInfo] = []
    monkeypatch.setattr(launcher.nodepool.pools, "absent", lambda: absent)

    def look() -> list[str | None]:
        launcher.settle()
        worker.fail_refused_requests()
        return [znodes.request_state(request_id) for request_id in (refused, open_one)]

    assert look() == ["requested", "requested"], "others may be on their way, just after the start"
    worker._begun -= START_SECONDS + 1
    absent.append(away)
    assert look() == ["requested", "requested"], "it may come back"
    absent.clear()
    assert look() == ["failed", "requested"]


def test_empty_nodes(launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes) -> None:
    """C-8: not while somebody holds their lock, and never one with data, however bad."""
    empty, held, bad = (znodes.create_node(data) for data in (b"", b"", b"no json"))
    lock = Lock(znodes.kazoo, f"/nodepool/nodes/{held}/lock")
    assert lock.acquire(timeout=5)
    launcher.settle()
    worker.remove_empty_nodes()
    assert znodes.children("/nodepool/nodes") == sorted([held, bad])
    lock.release()
    worker.remove_empty_nodes()
    assert znodes.children("/nodepool/nodes") == [bad]
    assert empty != bad


def test_lock_directories(launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes) -> None:
    """C-2: of a gone request at once if nobody is in it, after 8 h else; of a request that is there never."""
    request_id = znodes.submit(["small"])
    root = "/nodepool/requests-lock"
    for name in (request_id, "200-0000000090"):
        znodes.kazoo.create(f"{root}/{name}")
    lock = Lock(znodes.kazoo, f"{root}/200-0000000091")
    assert lock.acquire(timeout=5)
    launcher.settle()
    worker.remove_lock_dirs()
    assert znodes.children(root) == sorted([request_id, "200-0000000091"])
    store = launcher.nodepool.zk.requests
    store._clock = lambda: time.time() + deletion.LOCK_DIR_SECONDS + 60
    worker.remove_lock_dirs()
    assert znodes.children(root) == [request_id]


@pytest.mark.parametrize(
    ("fields", "goes"),
    [
        ({"state": "ready", "age": 501}, True),
        ({"state": "ready", "age": 400}, False),
        ({"state": "ready", "age": 501, "type": ["other"]}, False),
        ({"state": "ready", "age": 501, "type": ["other", "small"]}, True),
        ({"state": "ready", "age": 501, "provider": "elsewhere"}, False),
        ({"state": "hold", "age": 1001}, True),
        ({"state": "hold", "age": 900}, False),
        ({"state": "hold", "age": 900, "hold_expiration": 100}, True),
        ({"state": "hold", "age": 900, "hold_expiration": "100"}, True),
        ({"state": "hold", "age": 900, "hold_expiration": "no number"}, False),
        ({"state": "hold", "age": 1001, "provider": "elsewhere"}, False),
        ({"state": "testing", "age": 10_000}, False),
    ],
)
def test_ages(
    launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes, fields: dict[str, Any], goes: bool
) -> None:
    """C-5, C-6, C-7"""
    node = {**fields, "state_time": time.time() - fields["age"]}
    node_id = znodes.add_node(**node)
    launcher.settle()
    worker.expire_nodes()
    assert ((znodes.node(node_id) or {})["state"] == "deleting") is goes


@pytest.mark.parametrize("how", ["locked", "allocated"])
def test_old_node_that_is_in_use(launcher: StillLauncher, worker: CleanupWorker, znodes: PoolZnodes, how: str) -> None:
    """C-5: neither with a lock nor with a request."""
    request_id = znodes.submit(["small"], state="fulfilled") if how == "allocated" else None
    node_id = znodes.add_node("ready", state_time=1.0, allocated_to=request_id)
    launcher.settle()
    lock = Lock(znodes.kazoo, f"/nodepool/nodes/{node_id}/lock")
    if how == "locked":
        assert lock.acquire(timeout=5)
    worker.expire_nodes()
    assert (znodes.node(node_id) or {})["state"] == "ready"
    if how == "locked":
        lock.release()
