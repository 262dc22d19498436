# SPDX-License-Identifier: Apache-2.0
"""The periodic sweeps, and nodes that are kept ready, by single passes of their workers (rules C, M)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.fake import FakeProvider
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.exceptions import CloudUnavailableException, ZKConnectionError
from nodepool.launcher.deletion import LATER_SECONDS, LOST_SECONDS, SOON_SECONDS, SWEEP_SECONDS, CleanupWorker
from nodepool.launcher.pool.intake import START_SECONDS
from nodepool.launcher.supervisor import PACE_SECONDS, MinReadyWorker
from nodepool.model.reasons import Reason, ReasonCode
from nodepool.plan.launch import RESUME_SECONDS
from nodepool.plan.triage import PoolInfo
from tests.support.local_launcher import fake_provider
from tests.support.manual_clock import ManualClock, monotonic_clock
from tests.support.pool_znodes import REQUESTS, PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Passes, Patch, Still, home, locked, raising


class Sweeps(Passes):
    """The worker of a launcher with the providers ``one`` to ``three``."""

    def __init__(self, launcher: StillLauncher, znodes: PoolZnodes, clock: ManualClock) -> None:
        self.worker = launcher.nodepool.cleanup.current
        self.providers = launcher.nodepool.providers.running
        super().__init__(launcher, znodes, self.worker, clock)

    def state(self, request_id: str) -> str | None:
        return self.znodes.request_state(request_id)

    def lock_dir(self) -> str:
        """Path of one that outlived its request."""
        path: str = self.znodes.kazoo.create("/nodepool/requests-lock/200-0000000097", makepath=True)
        return path

    def found(self, *node_ids: str) -> list[tuple[str, str | None]]:
        nodes = [self.znodes.node(node_id) or {} for node_id in node_ids]
        return [(node["state"], node.get("allocated_to")) for node in nodes]


@pytest.fixture
def sweeps(
    still: Still, cloud_name: str, cloud: FakeCloud, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> Sweeps:
    clock = monotonic_clock(monkeypatch, home(CleanupWorker), now=time.monotonic())
    sections = [fake_provider(name, cloud=cloud_name) for name in ("one", "two", "three")]
    return Sweeps(still(sections, labels={"small": {"max-ready-age": 500}}, max_hold_age=1000), znodes, clock)


def test_launcher_that_went(sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> None:
    """C-4: its requests are looked at right away, all that it may have left a moment later.

    It has left the registry, but may keep its locks for some seconds: its requests are looked at again.
    """
    sweeps.run()
    ids = [sweeps.znodes.submit(["small"], state="pending") for _ in range(2)]
    left = sweeps.lock_dir()
    assert sweeps.run() > SOON_SECONDS
    with locked(sweeps.znodes, f"requests-lock/{ids[0]}"):
        sweeps.worker.launcher_went()
        assert sweeps.run() == pytest.approx(LOST_SECONDS)
        assert sweeps.run(LOST_SECONDS) == pytest.approx(SOON_SECONDS - LOST_SECONDS)
        assert [sweeps.state(request_id) for request_id in ids] == ["pending", "requested"]
        assert sweeps.znodes.kazoo.exists(left)
        sweeps.run(SOON_SECONDS - LOST_SECONDS)
        assert not sweeps.znodes.kazoo.exists(left)
    sweeps.run(LATER_SECONDS[0] - SOON_SECONDS)
    assert sweeps.state(ids[0]) == "requested"


def test_launches_that_a_pool_may_go_on_with(sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> None:
    """L-18, C-4: its request and its ready nodes stay as they are for a while. Its launches are left to their owner."""
    for provider in sweeps.launcher.nodepool.providers.running.values():
        monkeypatch.setattr(provider, "RESUMES", True)
    other, request = (sweeps.znodes.submit(["small"] * 2, state="pending") for _ in range(2))
    nodes = [sweeps.znodes.add_node(state, allocated_to=request) for state in ("ready", "building")]
    building = sweeps.znodes.node(nodes[1])
    sweeps.launcher.settle()
    with monkeypatch.context() as patch:
        # When its launches were interrupted is known all the same.
        patch.setattr(sweeps.launcher.nodepool.zk.requests, "save_unlocked", raising(ZKConnectionError("away")))
        with pytest.raises(ZKConnectionError):
            sweeps.worker.reset_lost_requests()
    for later in (SWEEP_SECONDS / 4, SWEEP_SECONDS / 4):
        sweeps.clock.pass_seconds(later)
        sweeps.launcher.settle()
        sweeps.worker.sweep()
        assert (sweeps.state(request), sweeps.found(*nodes)) == ("pending", [("ready", request), ("building", request)])
    sweeps.clock.pass_seconds(RESUME_SECONDS - SWEEP_SECONDS / 2)
    sweeps.worker.sweep()
    assert (sweeps.state(request), sweeps.found(nodes[0])) == ("requested", [("ready", None)])
    assert (sweeps.znodes.node(nodes[1]), sweeps.state(other)) == (building, "requested")


def test_tasks_are_independent(
    sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C-1: one that fails stops no other. C-4: a sweep that a lost connection interrupted comes again soon."""
    old = sweeps.znodes.add_node("ready", state_time=1.0)
    requests = sweeps.launcher.nodepool.zk.requests
    with monkeypatch.context() as patch:
        patch.setattr(requests, "lock_dir_ids", raising(RuntimeError("no way")))
        sweeps.run()
        assert "cleanup task remove_lock_dirs" in caplog.text
        assert sweeps.found(old) == [("deleting", None)]
        patch.setattr(requests, "lock_dir_ids", raising(ZKConnectionError("away")))
        with pytest.raises(ZKConnectionError):
            sweeps.run(SWEEP_SECONDS)
    assert 0 < sweeps.run() <= SOON_SECONDS


def test_refused_by_all_that_are_left(sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-15: the pool that had not declined went for good: none would ever look at the request again."""
    launcher = sweeps.launcher
    ids = [launcher.worker(name).launcher_id for name in ("one", "two", "three")]
    requests = [sweeps.znodes.submit(["small"], declined_by=declined) for declined in (ids, ["x"], [])]
    absent = [PoolInfo("away", "two", frozenset({"small"}), 100, paused=False)]
    monkeypatch.setattr(launcher.nodepool.pools, "absent", lambda: absent)

    def look() -> list[str | None]:
        launcher.settle()
        sweeps.worker.fail_refused_requests()
        return [sweeps.state(request_id) for request_id in requests]

    waits = ["requested"] * 3
    assert look() == waits, "others may be on their way, just after the start"
    sweeps.clock.pass_seconds(START_SECONDS + 1)
    assert look() == waits, "it may come back"
    absent.clear()
    assert look() == ["failed", "requested", "requested"]


def test_provider_that_hangs(sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch) -> None:
    """C-1, C-3: a cloud that does not answer holds up neither the other sweeps nor the other providers."""
    called: list[str] = []
    release = threading.Event()

    def look(provider: FakeProvider) -> None:
        called.append(provider.name)
        if provider.name == "one":
            release.wait(30)

    monkeypatch.setattr(FakeProvider, "cleanupLeakedResources", look)
    sweeps.run()
    wait_for("all are called", lambda: sorted(called) == ["one", "three", "two"])
    left = sweeps.lock_dir()
    sweeps.run(SWEEP_SECONDS)
    wait_for("the others are called again", lambda: sorted(called) == ["one", "three", "three", "two", "two"])
    assert not sweeps.znodes.kazoo.exists(left)
    release.set()
    sweeps.worker.on_stop()


# -- leaks


def test_trouble_of_providers(
    sweeps: Sweeps, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C-3: each is on its own. What a cloud says needs no traceback, nor does ZooKeeper when it is away.

    Also a provider object without ``name``, and one that gets no thread just now.
    """
    errors = {
        "one": RuntimeError("no way"),
        "two": CloudUnavailableException("it is away"),
        "three": ZKConnectionError("ZooKeeper: ConnectionClosedError"),
    }
    called: list[str] = []
    names = {id(provider): name for name, provider in sweeps.providers.items()}

    def look(provider: FakeProvider) -> None:
        called.append(names[id(provider)])
        raise errors[names[id(provider)]]

    monkeypatch.setattr(FakeProvider, "cleanupLeakedResources", look)
    sweeps.worker.clean_leaks()
    sweeps.worker.on_stop()
    assert sorted(called) == sorted(errors)
    assert "Provider one: error in cleanupLeakedResources()" in caplog.text
    assert "Provider two: cleanupLeakedResources(): CloudUnavailableException: it is away" in caplog.text
    assert "Provider three: cleanupLeakedResources(): ZKConnectionError: ZooKeeper: " in caplog.text
    assert sum(record.exc_info is not None for record in caplog.records) == 1
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "Leaks-one":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.delattr(sweeps.providers["two"], "name")
    called.clear()
    for _ in range(2):
        sweeps.worker.clean_leaks()
        sweeps.worker.on_stop()
    assert sorted(called) == ["three"] * 2 + ["two"] * 2
    assert "Provider one: leaked resources are looked for in the next sweep" in caplog.text


# -- nodes that are kept ready (rules M)


class Kept(Passes):
    """A launcher that keeps two nodes of the label ``small``, and none of two others."""

    def __init__(self, launcher: StillLauncher, znodes: PoolZnodes, clock: ManualClock) -> None:
        self.worker = launcher.nodepool.min_ready.current
        super().__init__(launcher, znodes, self.worker, clock)

    def requests(self) -> list[dict[str, Any]]:
        """The requests after a change and a pass."""
        self.worker.changed()
        self.run(PACE_SECONDS)
        return [self.znodes.request(request_id) or {} for request_id in self.ids()]

    def ids(self) -> list[str]:
        return self.znodes.children(REQUESTS)


@pytest.fixture
def kept(still: Still, cloud_name: str, cloud: FakeCloud, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch) -> Kept:
    monkeypatch.setattr(home(MinReadyWorker), "LINGER_SECONDS", 0.0)
    labels = {"small": {"min-ready": 2}, "a": {"min-ready": 0}, "b": {"min-ready": -1}}
    launcher = still([fake_provider("one", tuple(labels), cloud=cloud_name)], labels=labels)
    return Kept(launcher, znodes, monotonic_clock(monkeypatch, home(MinReadyWorker)))


def test_requests(kept: Kept) -> None:
    """M-1, M-2, M-5, M-6: one request for each missing node, ephemeral, of the lowest priority, for new nodes; once.

    They go with the launcher.
    """
    for provider in kept.launcher.nodepool.providers.running.values():
        for pool in provider.provider.pools.values():
            del pool.provider  # M-3: drivers of other people need not have it
    for _ in range(3):
        found = kept.requests()
        facts = [(request["node_types"], request["reuse"], request["requestor"]) for request in found]
        assert facts == [(["small"], False, "NodePool:min-ready")] * 2
    assert all(request["event_id"] for request in found)
    assert all(request_id.startswith("900-") for request_id in kept.ids())
    assert all(kept.znodes.kazoo.get(f"{REQUESTS}/{i}")[1].ephemeralOwner for i in kept.ids())
    kept.worker.on_stop()
    assert kept.ids() == []


def test_order(still: Still, cloud_name: str, cloud: FakeCloud, znodes: PoolZnodes, monkeypatch: Patch) -> None:
    """Labels come in the order of the configuration."""
    names = tuple("abcdefgh")
    launcher = still(
        [fake_provider("one", names[::-1], cloud=cloud_name)], labels={name: {"min-ready": 1} for name in names}
    )
    kept = Kept(launcher, znodes, monotonic_clock(monkeypatch, home(MinReadyWorker)))
    assert [request["node_types"] for request in kept.requests()] == [[name] for name in names]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("labelReady", lambda *_: False),
        ("labelReady", raising(ZeroDivisionError())),
        ("heldLabels", lambda *_: {"small": Reason(ReasonCode.BACKING_HELD, "its cloud is paused")}),
    ],
)
def test_nothing_that_cannot_be_built(kept: Kept, name: str, answer: Callable[..., Any]) -> None:
    """M-3, MT-7, MT-11: only when a pool could launch it now; an error of a driver is a no."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeProvider, name, answer)
        assert kept.requests() == []
        patch.setattr(FakeProvider, "heldLabels", lambda *_: {"a": Reason(ReasonCode.BACKING_HELD, "another one")})
        patch.setattr(FakeProvider, "labelReady", lambda *_: True)
        assert len(kept.requests()) == 2
