# SPDX-License-Identifier: Apache-2.0
"""The deletion worker by its single pass (rules X, C-9, C-10)."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.recipe.lock import Lock

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.fake.provider import FakeProvider
from nodepool.driver.framework.rate import HeldTime
from nodepool.exceptions import ZKConnectionError
from nodepool.launcher import deletion
from nodepool.plan.retries import Backoff
from nodepool.zk.nodes import NodeStore
from nodepool.zk.reply import Reply
from tests.support.local_launcher import fake_provider
from tests.support.manual_clock import ManualClock
from tests.support.pool_znodes import READY_NODE, PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Still


def fail(provider: FakeProvider, node: Any) -> Any:
    raise RuntimeError("no way")


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud) -> StillLauncher:
    return still([fake_provider("one", cloud=cloud_name)])


def test_lock_is_given_back_when_the_provider_raises(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """X-7, X-5: the node is unlocked, stays `deleting`, and is tried again."""

    node_id = znodes.add_node("used", external_id="x")
    worker = launcher.nodepool.deletion.current
    with monkeypatch.context() as patch:
        patch.setattr(FakeProvider, "startNodeCleanup", fail)
        launcher.settle()
        worker.run_once()
        assert "no way" in caplog.text
        assert znodes.node_lockers(node_id) == []
        assert (znodes.node(node_id) or {})["state"] == "deleting"
        launcher.settle()
        wait = worker.run_once()
        assert wait is not None
        assert 0 < wait <= deletion.RETRY.first_seconds
    launcher.passes(worker, "it is gone", lambda: znodes.node(node_id) is None)


def test_lines_carry_event_and_request(
    launcher: StillLauncher, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    """J-10: of a node that is given back, also when its request is gone."""
    caplog.set_level("INFO")
    node_id = znodes.add_node("used", external_id="x", allocated_to="200-0000000007", request_event_id="E")
    launcher.passes(launcher.nodepool.deletion.current, "it is gone", lambda: znodes.node(node_id) is None)
    ids = f"[e: E] [node_request: 200-0000000007] [node: {node_id}] "
    (line,) = [record for record in caplog.records if "Deleting node" in record.getMessage()]
    assert line.getMessage().startswith(f"{ids}Deleting node of provider one: used and unlocked")
    assert (vars(line)["provider"], vars(line)["pool"], vars(line)["label"]) == ("one", "main", "small")
    wait_for("it is told", lambda: f"{ids}Deleted node of provider one" in caplog.text)


def test_no_hot_loop_while_a_deletion_is_tried_again(
    launcher: StillLauncher, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-5: a second attempt that takes long does not make the worker run without a pause."""
    monkeypatch.setattr(deletion, "RETRY", Backoff(0.05, 60.0))
    instance = cloud.create("np", metadata={}, resources={})
    cloud.set(down=True, delete_seconds=1000.0)
    node_id = znodes.add_node("used", external_id=instance.id)
    worker = launcher.nodepool.deletion.current
    launcher.passes(worker, "it failed once", lambda: worker._attempts)
    cloud.set(down=False)
    launcher.passes(worker, "it is tried again", lambda: node_id in worker._deletions)
    for _ in range(3):
        wait = worker.run_once()
        assert wait is not None
        assert wait > 0.1
    cloud.set(delete_seconds=0.0)
    cloud._records[instance.id].gone_at = 0.0
    cloud.wake()
    wait_for("it is gone", lambda: znodes.node(node_id) is None)


def test_cloud_answers_again(
    launcher: StillLauncher, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-5: what failed while a cloud was away is deleted as soon as it is back: until then it takes up quota."""
    monkeypatch.setattr(deletion, "RETRY", Backoff(50.0, 60.0))
    instance = cloud.create("np", metadata={}, resources={})
    cloud.set(down=True)
    monkeypatch.setattr(FakeProvider, "pausedReason", lambda _provider: "the cloud does not answer")
    node_id = znodes.add_node("used", external_id=instance.id)
    worker = launcher.nodepool.deletion.current
    launcher.passes(worker, "it failed", lambda: worker._attempts)
    wait_for("it looks again soon enough to see the end of it", lambda: worker.run_once() == 1.0)
    cloud.set(down=False)
    monkeypatch.setattr(FakeProvider, "pausedReason", lambda _provider: None)
    launcher.passes(worker, "it is gone", lambda: znodes.node(node_id) is None)


def test_error_of_a_driver_that_is_asked_whether_it_rests(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(FakeProvider, "pausedReason", lambda _provider: 1 / 0)
    node_id = znodes.add_node("used", external_id="x")
    launcher.passes(launcher.nodepool.deletion.current, "it is gone", lambda: znodes.node(node_id) is None)
    assert "Provider one: error in pausedReason()" in caplog.text


def test_a_deletion_that_fails_again_and_again_is_an_event(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-5"""
    monkeypatch.setattr(deletion, "RETRY", Backoff(0.001, 0.002))
    monkeypatch.setattr(FakeProvider, "startNodeCleanup", fail)
    node_id = znodes.add_node("used", external_id="x")
    worker = launcher.nodepool.deletion.current
    launcher.passes(worker, "it failed five times", lambda: worker._attempts.get(node_id, 0) >= 5)
    subject = f"node {node_id}"
    events = [
        (event.subject, event.what, event.text)
        for event in launcher.nodepool.events.last(10)
        if event.subject == subject
    ]
    assert events[:2] == [
        (subject, "deletion failed", "deletion failed 2 times: no way"),
        (subject, "deletion failed", "deletion failed 4 times: no way"),
    ]


def test_the_error_of_a_driver_is_in_the_event(
    launcher: StillLauncher, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "RETRY", Backoff(0.001, 0.002))
    instance = cloud.create("np", metadata={}, resources={})
    cloud.set(down=True)
    znodes.add_node("used", external_id=instance.id)
    worker = launcher.nodepool.deletion.current
    events = launcher.nodepool.events
    launcher.passes(worker, "there is an event", lambda: events.last(1)[0].what == "deletion failed")
    (event,) = events.last(1)
    assert event.text.startswith("deletion failed 2 times: ")
    assert "the log of the provider" not in event.text


@pytest.mark.parametrize("what", ["locked", "hold"])
def test_no_hot_loop_when_a_retry_finds_nothing_to_do(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """X-2, X-1: a failed node that somebody locked, or put on hold, meanwhile is left alone, without a busy loop."""
    monkeypatch.setattr(deletion, "RETRY", Backoff(0.05, 60.0))
    monkeypatch.setattr(FakeProvider, "startNodeCleanup", fail)
    node_id = znodes.add_node("used", external_id="x")
    worker = launcher.nodepool.deletion.current
    launcher.settle()
    worker.run_once()
    lock = Lock(znodes.kazoo, f"/nodepool/nodes/{node_id}/lock")
    if what == "locked":
        assert lock.acquire(timeout=5)
    else:
        znodes.change_node(node_id, state="hold")
    launcher.settle()
    wait_for("the retry is over", lambda: worker.run_once() is None)
    assert worker.run_once() is None
    if what == "locked":
        lock.release()


def test_lock_of_a_deletion_that_died(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-5: a task that ends without giving the lock back does not keep the node locked for ever."""

    def die(provider: FakeProvider, node: Any) -> threading.Thread:
        return threading.Thread(target=lambda: None)

    monkeypatch.setattr(deletion, "CHECK_SECONDS", 0.0)
    node_id = znodes.add_node("used", external_id="x")
    worker = launcher.nodepool.deletion.current
    with monkeypatch.context() as patch:
        patch.setattr(FakeProvider, "startNodeCleanup", die)
        launcher.passes(worker, "it began", lambda: node_id in worker._deletions)
        worker.run_once()
        assert znodes.node_lockers(node_id) == []
    launcher.passes(worker, "it is gone", lambda: znodes.node(node_id) is None)


def test_deletion_that_takes_too_long(
    launcher: StillLauncher, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-5: after the timeout the lock is free, and the deletion begins anew."""
    monkeypatch.setattr(deletion, "DELETE_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(deletion, "CHECK_SECONDS", 0.0)
    cloud.set(delete_seconds=0.3)
    instance = cloud.create("np", metadata={}, resources={})
    node_id = znodes.add_node("used", external_id=instance.id)
    worker = launcher.nodepool.deletion.current
    launcher.passes(worker, "it began", lambda: znodes.node_lockers(node_id))
    worker.run_once()
    assert znodes.node_lockers(node_id) == []
    assert (znodes.node(node_id) or {"state": "deleting"})["state"] == "deleting"
    launcher.passes(worker, "it is gone", lambda: znodes.node(node_id) is None)


def test_deletion_that_waits_for_a_limit_of_our_own(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-5: a driver says for how long it did; that time does not count."""

    class Waits:
        def __init__(self, clock: ManualClock) -> None:
            self.held = HeldTime(clock)
            self.held.begin()

        def is_alive(self) -> bool:
            return True

        def join(self, timeout: float | None = None) -> None:
            """It does not end."""

    monkeypatch.setattr(deletion, "CHECK_SECONDS", 0.0)
    clock = ManualClock()
    task = Waits(clock)
    monkeypatch.setattr(deletion, "monotonic", clock)
    monkeypatch.setattr(FakeProvider, "startNodeCleanup", lambda provider, node: task)
    node_id = znodes.add_node("used")
    worker = launcher.nodepool.deletion.current
    launcher.passes(worker, "it began", lambda: znodes.node_lockers(node_id))
    clock.now += 1000
    worker.run_once()
    assert znodes.node_lockers(node_id)
    task.held.end()
    clock.now += 599
    worker.run_once()
    assert znodes.node_lockers(node_id)
    clock.now += 2
    worker.run_once()
    assert znodes.node_lockers(node_id) == []


def test_only_nodes_of_a_gone_request_are_looked_at(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-9: what a cancelled request had is free again; nobody goes through all the others for that."""
    request_id, other = znodes.submit(["small"], state="fulfilled"), znodes.submit(["small"], state="fulfilled")
    mine = znodes.add_node("ready", allocated_to=request_id)
    theirs = znodes.add_node("ready", allocated_to=other)
    worker = launcher.nodepool.deletion.current
    launcher.settle()
    worker.run_once()
    looked: list[str] = []
    consider = worker._consider

    def note(node_id: str, *args: Any) -> None:
        looked.append(node_id)
        consider(node_id, *args)

    monkeypatch.setattr(worker, "_consider", note)
    znodes.delete_request(request_id)
    launcher.passes(worker, "it is free", lambda: (znodes.node(mine) or {})["allocated_to"] is None)
    assert set(looked) == {mine}
    assert (znodes.node(theirs) or {})["allocated_to"] == other


def test_init_node_of_a_finished_request(launcher: StillLauncher, znodes: PoolZnodes) -> None:
    """C-10: it goes when its request is fulfilled, not only when somebody looks at everything."""
    request_id = znodes.submit(["small"], state="pending")
    node_id = znodes.add_node("init", allocated_to=request_id)
    worker = launcher.nodepool.deletion.current
    launcher.settle()
    worker.run_once()
    assert znodes.node(node_id) is not None
    request = znodes.request(request_id)
    assert request is not None
    znodes.kazoo.set(f"/nodepool/requests/{request_id}", json.dumps({**request, "state": "fulfilled"}).encode())
    launcher.passes(worker, "it is gone", lambda: znodes.node(node_id) is None)


def test_time_of_deleting_does_not_move(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q-9, X-5: ``state_time`` tells when a node went to `deleting` first, however often it is tried."""
    monkeypatch.setattr(FakeProvider, "startNodeCleanup", fail)
    node_id = znodes.add_node("deleting", external_id="x", state_time=1000.0)
    launcher.settle()
    launcher.nodepool.deletion.current.run_once()
    assert (znodes.node(node_id) or {})["state_time"] == 1000.0


@pytest.mark.parametrize("before", [b"", READY_NODE], ids=["made-empty", "emptied"])
def test_empty_nodes_go_soon(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    """C-8: without waiting for the sweep, but not while somebody holds their lock."""
    monkeypatch.setattr(deletion, "LOOK_AGAIN_SECONDS", 0.05)
    worker = launcher.nodepool.deletion.current
    empty, held = znodes.create_node(before), znodes.create_node(before)
    lock = Lock(znodes.kazoo, f"/nodepool/nodes/{held}/lock")
    assert lock.acquire(timeout=5)
    for node_id in (empty, held):
        znodes.kazoo.set(f"/nodepool/nodes/{node_id}", b"")
    launcher.passes(worker, "it is gone", lambda: znodes.children("/nodepool/nodes") == [held])
    launcher.passes(worker, "the other one was looked at twice", lambda: not worker._empty and not worker._due)
    assert znodes.children("/nodepool/nodes") == [held]
    lock.release()


def test_node_that_is_being_read(launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Released with changes that are not here yet: what the old record says would be written for nothing."""
    node_id = znodes.add_node("ready", allocated_to="200-0000000000")
    launcher.settle()
    worker = launcher.nodepool.deletion.current
    with monkeypatch.context() as patch:
        patch.setattr(launcher.nodepool.cache.nodes, "is_reading", lambda node_id: True)
        worker.run_once()
        assert (znodes.node(node_id) or {})["allocated_to"]
    worker.node_changed(node_id)
    worker.run_once()
    assert (znodes.node(node_id) or {})["allocated_to"] is None


def test_node_whose_deletion_goes_on(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-2, X-5: what happens to it meanwhile is no reason to look; that the deletion has ended is seen each second."""
    over = threading.Event()

    def begin(provider: FakeProvider, node: Any) -> threading.Thread:
        thread = threading.Thread(target=over.wait, daemon=True)
        thread.start()
        return thread

    monkeypatch.setattr(FakeProvider, "startNodeCleanup", begin)
    node_id = znodes.add_node("used", external_id="x")
    worker = launcher.nodepool.deletion.current
    launcher.passes(worker, "it began", lambda: node_id in worker._deletions)
    wait = worker.run_once()
    assert wait is not None
    assert 0 < wait <= deletion.CHECK_SECONDS
    considered: list[str] = []
    monkeypatch.setattr(worker, "_consider", lambda node_id, *rest: considered.append(node_id))
    worker.node_changed(node_id)
    worker.node_changed("0000009999")
    worker.run_once()
    assert considered == ["0000009999"]
    over.set()
    wait_for("its end is seen", lambda: worker.run_once() is None or node_id not in worker._deletions)
    assert znodes.node_lockers(node_id) == []


# -- many at once


def used_nodes(znodes: PoolZnodes, cloud: FakeCloud, count: int) -> list[str]:
    instances = [cloud.create("np", metadata={}, resources={}) for _ in range(count)]
    return [znodes.add_node("used", external_id=instance.id) for instance in instances]


def test_locks_are_sent_together(
    launcher: StillLauncher, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-2: the answers are waited for once, but not those of hundreds before the first deletion begins."""
    told: list[str] = []
    send, start = NodeStore.send_lock_and_save, FakeProvider.startNodeCleanup

    def sent(store: NodeStore, node: Any, exists: bool) -> Reply:
        told.append("lock")
        return send(store, node, exists)

    def started(provider: FakeProvider, node: Any) -> Any:
        told.append("start")
        return start(provider, node)

    monkeypatch.setattr(NodeStore, "send_lock_and_save", sent)
    monkeypatch.setattr(FakeProvider, "startNodeCleanup", started)
    monkeypatch.setattr(deletion, "SENT_TOGETHER", 3)
    ids = used_nodes(znodes, cloud, 5)
    worker = launcher.nodepool.deletion.current
    launcher.settle()
    worker.run_once()
    assert told == ["lock"] * 3 + ["start"] * 3 + ["lock"] * 2 + ["start"] * 2
    launcher.passes(worker, "all are gone", lambda: not any(znodes.node(node_id) for node_id in ids))


def lost_answer() -> Reply:
    reply = Reply()
    reply.set_exception(ConnectionLoss())
    return reply


def not_connected() -> Reply:
    raise ZKConnectionError("not connected to ZooKeeper")


@pytest.mark.parametrize(("lock", "begun"), [(lost_answer, [0, 2]), (not_connected, [0])])
def test_connection_lost_between_locks(
    launcher: StillLauncher,
    znodes: PoolZnodes,
    cloud: FakeCloud,
    monkeypatch: pytest.MonkeyPatch,
    lock: Callable[[], Reply],
    begun: list[int],
) -> None:
    """X-7: whatever became of one of them, the nodes that are locked are deleted: nobody else would unlock them."""
    ids = used_nodes(znodes, cloud, 3)
    send = NodeStore.send_lock_and_save

    def sent(store: NodeStore, node: Any, exists: bool) -> Reply:
        return lock() if node.id == ids[1] else send(store, node, exists)

    worker = launcher.nodepool.deletion.current
    with monkeypatch.context() as patch:
        patch.setattr(NodeStore, "send_lock_and_save", sent)
        launcher.settle()
        with pytest.raises(ZKConnectionError):
            worker.run_once()
    assert sorted(worker._deletions) == [ids[number] for number in begun]
    worker._next_full = 0.0
    launcher.passes(worker, "all are gone", lambda: not any(znodes.node(node_id) for node_id in ids))


def test_lock_directory_that_is_not_known_yet(
    launcher: StillLauncher, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache may be behind: the other way is tried, too."""
    (node_id,) = used_nodes(znodes, cloud, 1)
    worker = launcher.nodepool.deletion.current
    monkeypatch.setattr(NodeStore, "has_lock_dir", lambda *_: True)
    launcher.settle()
    worker.run_once()
    assert list(worker._deletions) == [node_id]
