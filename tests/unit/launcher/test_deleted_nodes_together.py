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
        znodes.add_node("used", external_id="y")
        launcher.settle()

    monkeypatch.setattr(worker._stopping, "wait", wait)
    znodes.add_node("used", external_id="x")
    launcher.settle()
    worker._guarded_pass()
    assert waits == []
    assert len(worker._deletions) == 1
    worker._guarded_pass()
    (seconds,) = waits
    assert 0 < seconds <= deleted_node_worker.GATHER_SECONDS
    assert len(worker._deletions) == 2
    assert not worker._event.is_set()


def test_host_that_goes_back_waits_for_nothing(
    launcher: StillLauncher, znodes: PoolZnodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may wait for it."""
    worker = launcher.nodepool.deletion.current
    monkeypatch.setattr(FakeProvider, "LAUNCHES", False)
    monkeypatch.setattr(worker._stopping, "wait", lambda seconds: pytest.fail(f"waits for {seconds} s"))
    for _ in range(2):
        znodes.add_node("used", external_id="x")
        launcher.settle()
        worker._guarded_pass()
    assert len(worker._deletions) == 2
