# SPDX-License-Identifier: Apache-2.0
"""The deletion worker and nodes that are released shortly one after the other."""

from __future__ import annotations

import pytest

from nodepool.driver.fake.cloud import FakeCloud
from nodepool.driver.fake.provider import FakeProvider
from nodepool.launcher import deleted_node_worker
from tests.support.local_launcher import fake_provider
from tests.support.pool_znodes import PoolZnodes
from tests.support.still_launcher import StillLauncher
from tests.unit.launcher.conftest import Still


@pytest.fixture
def launcher(still: Still, cloud_name: str, cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch) -> StillLauncher:
    """However long a pass takes, the next one is shortly after it; and all deletions are remembered."""
    for name in ("GATHER_SECONDS", "CHECK_SECONDS"):
        monkeypatch.setattr(deleted_node_worker, name, 3600.0)
    return still([fake_provider("one", cloud=cloud_name)])


def test_nodes_that_are_released_one_after_the_other(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is seen to at once; those that follow soon share a pass, and cause no other one."""
    worker = launcher.nodepool.deletion.current
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        for _ in range(2):
            znodes.add_node("used", external_id="y")
        launcher.settle()
        assert not worker._event.is_set(), "nobody is woken for each of them"

    monkeypatch.setattr(worker._event, "wait", wait)
    znodes.add_node("used", external_id="x")
    launcher.settle()
    worker._guarded_pass()
    assert waits == []
    assert len(worker._deletions) == 1
    worker._guarded_pass()
    (seconds,) = waits
    assert 0 < seconds <= deleted_node_worker.GATHER_SECONDS
    assert len(worker._deletions) == 3
    assert not worker._event.is_set()


def test_host_that_goes_back_waits_for_nothing(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may wait for it; also when it comes while others are waited for."""
    worker = launcher.nodepool.deletion.current
    waits: list[float] = []

    def release_a_host(seconds: float) -> None:
        waits.append(seconds)
        monkeypatch.setattr(FakeProvider, "LAUNCHES", False)
        znodes.add_node("used", external_id="x")
        launcher.settle()
        assert worker._event.is_set(), "the wait is over"

    monkeypatch.setattr(worker._event, "wait", release_a_host)
    for expected in (0, 1, 1):
        znodes.add_node("used", external_id="x")
        launcher.settle()
        worker._guarded_pass()
        assert len(waits) == expected
    assert len(worker._deletions) == 4


def test_stop_waits_for_nothing(launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = launcher.nodepool.deletion.current
    monkeypatch.setattr(worker._event, "wait", lambda seconds: pytest.fail(f"waits for {seconds} s"))
    znodes.add_node("used", external_id="x")
    launcher.settle()
    worker._guarded_pass()
    worker.stop()
    worker._guarded_pass()


def test_pass_without_nodes_delays_nobody(launcher: StillLauncher) -> None:
    """There is one each second while deletions go on."""
    worker = launcher.nodepool.deletion.current
    worker._next_full = float("inf")
    worker._changed.clear()
    worker.run_once()
    assert worker._next_pass == 0.0
