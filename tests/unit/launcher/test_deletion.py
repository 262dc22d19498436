# SPDX-License-Identifier: Apache-2.0
"""The deletion worker by its single pass (rules X, C-9, C-10)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nodepool.driver.fake import FakeProvider
from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.framework.rate import HeldTime
from nodepool.launcher.deletion import CHECK_SECONDS, DELETE_TIMEOUT_SECONDS, RETRY, DeletedNodeWorker
from nodepool.plan.launch import RESUME_SECONDS
from nodepool.plan.retries import Backoff
from tests.support.manual_clock import ManualClock
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.support.wait import wait_for
from tests.unit.launcher.conftest import Passes, home, raising


class Task:
    """A deletion that ends when the test says so; ``held`` is how long it waited for a limit of our own."""

    def __init__(self, *, over: bool = False) -> None:
        self.over = threading.Event()
        if over:
            self.over.set()
        self.held = HeldTime()
        self.error: object = None

    def is_alive(self) -> bool:
        return not self.over.is_set()

    def join(self, timeout: float | None = None) -> None:
        """It does not end for that."""


class Deletion(Passes):
    """The worker of a launcher with a provider ``one``, whose deletions may be replaced."""

    def __init__(
        self, launcher: StillLauncher, znodes: PoolZnodes, cloud: FakeCloud, patch: pytest.MonkeyPatch
    ) -> None:
        self.cloud, self.patch, self.worker = cloud, patch, launcher.nodepool.deletion.current
        self.begun: list[str] = []
        self.plain: Callable[..., Any] = FakeProvider.startNodeCleanup
        self.begin: Callable[..., Any] = self.plain

        def begin(provider: FakeProvider, node: Any) -> Any:
            self.begun.append(node.id)
            return self.begin(provider, node)

        patch.setattr(FakeProvider, "startNodeCleanup", begin)
        clock = ManualClock(time.monotonic()).rules()
        super().__init__(launcher, znodes, self.worker, clock)

    def used(self, count: int = 1) -> list[str]:
        """Nodes that are not needed any more, with instances."""
        made = [self.cloud.create("np", metadata={}, resources={}) for _ in range(count)]
        return [self.znodes.add_node("used", external_id=instance.id) for instance in made]

    def until(self, what: str, look: Callable[[], Any]) -> None:
        wait_for(what, lambda: (self.run(CHECK_SECONDS), look())[1])

    def gone(self, *node_ids: str) -> None:
        self.until("they are gone", lambda: not any(map(self.znodes.node, node_ids)))

    def is_locked(self, node_id: str) -> bool:
        return bool(self.znodes.node_lockers(node_id))


@pytest.fixture
def deletion(
    launcher: StillLauncher, znodes: PoolZnodes, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Deletion]:
    with monkeypatch.context() as patch:
        yield Deletion(launcher, znodes, cloud, patch)


def test_driver_that_raises(deletion: Deletion, caplog: pytest.LogCaptureFixture) -> None:
    """X-7, X-5: the node is unlocked, stays `deleting`, and is tried again, later and later. Some failures are events.

    Q-9: its time is that of the first attempt.
    """
    deletion.begin = raising(RuntimeError("no way"))
    node_id = deletion.znodes.add_node("deleting", external_id="x", state_time=1000.0)
    for attempt in range(1, 6):
        deletion.run()
        assert len(deletion.begun) == attempt
        assert not deletion.is_locked(node_id)
        node = deletion.znodes.node(node_id) or {}
        assert (node["state"], node["state_time"]) == ("deleting", 1000.0)
        assert 0 < deletion.run() <= RETRY.pause(attempt)
        assert len(deletion.begun) == attempt, "not at once"
        deletion.clock.pass_seconds(RETRY.pause(attempt))
    assert "no way" in caplog.text
    events = [event for event in deletion.launcher.nodepool.events.last(10) if event.subject == f"node {node_id}"]
    assert [event.text for event in events] == [f"{count} times: no way" for count in (2, 4)]
    deletion.begin = deletion.plain
    deletion.patch.setattr(FakeProvider, "pausedReason", raising(ZeroDivisionError()))
    deletion.gone(node_id)


def test_launch_that_no_pool_goes_on_with(deletion: Deletion) -> None:
    """L-18, X-5: it is deleted after a while, and what fails then is tried again later and later, as all else."""
    deletion.patch.setattr(FakeProvider, "canResume", lambda provider, node: True)
    deletion.begin = raising(RuntimeError("no way"))
    request = deletion.znodes.submit(["small"], state="pending")
    deletion.znodes.add_node("building", allocated_to=request)
    for later, begun in ((0.0, 0), (RESUME_SECONDS - 1, 0), (1.0, 1), (0.0, 1), (RETRY.pause(1), 2), (1.0, 2)):
        deletion.worker.node_changed("")
        deletion.run(later)
        assert len(deletion.begun) == begun


def test_cloud_answers_again(deletion: Deletion) -> None:
    """X-5: what failed while a cloud was away is deleted as soon as it is back: until then it takes up quota."""
    deletion.patch.setattr(home(DeletedNodeWorker), "RETRY", Backoff(5000.0, 6000.0))
    (node_id,) = deletion.used()
    deletion.cloud.set(down=True)
    deletion.patch.setattr(FakeProvider, "pausedReason", lambda _: "the cloud does not answer")
    deletion.until("it failed", lambda: deletion.begun and not deletion.is_locked(node_id))
    deletion.run(CHECK_SECONDS)
    assert deletion.run() == CHECK_SECONDS, "it looks again soon enough to see the end of it"
    deletion.cloud.set(down=False)
    deletion.patch.setattr(FakeProvider, "pausedReason", lambda _: None)
    back = deletion.clock()
    deletion.until("it has begun again", lambda: len(deletion.begun) == 2)
    assert deletion.clock() - back < 5000, "before the time of the next attempt"
    deletion.gone(node_id)


@pytest.mark.parametrize("end", ["dies", "takes too long", "was held"])
def test_deletion_that_does_not_end_well(deletion: Deletion, end: str) -> None:
    """X-5: after its time the lock is free, and it begins anew. A wait for a limit of our own does not count."""
    task = Task()
    deletion.begin = lambda *_: task
    node_id = deletion.znodes.add_node("used", external_id="x")
    deletion.run()
    assert deletion.is_locked(node_id)
    assert deletion.run(CHECK_SECONDS) == CHECK_SECONDS, "no busy loop"
    # What happens to it meanwhile is no reason to look.
    deletion.worker.node_changed(node_id)
    assert deletion.run() == CHECK_SECONDS
    if end == "dies":
        task.over.set()
    elif end == "takes too long":
        deletion.run(DELETE_TIMEOUT_SECONDS - CHECK_SECONDS - 1)
        assert deletion.is_locked(node_id)
    else:
        task.held.begin()
        deletion.run(1000)
        task.held.end()
        deletion.run(DELETE_TIMEOUT_SECONDS - CHECK_SECONDS - 1)
        assert deletion.is_locked(node_id)
    deletion.run(2)
    assert not deletion.is_locked(node_id)
    assert (deletion.znodes.node(node_id) or {})["state"] == "deleting"
    deletion.begin = deletion.plain
    deletion.gone(node_id)
