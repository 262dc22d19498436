# SPDX-License-Identifier: Apache-2.0
"""Deletions, and the end of a provider (rules X, F-1, G-5)."""

from __future__ import annotations

import pytest

from nodepool.driver.statemachine.calls import Removal
from nodepool.driver.statemachine.deletion import NodeDeletion
from nodepool.model import states
from nodepool.plan.retries import Backoff
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.unit.driver.statemachine.conftest import MakeSite, home


@pytest.mark.parametrize("trouble", ["down", "too slow", "lock lost", "swallowed"])
def test_trouble(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    """X-3, X-5: after an error of the cloud, or too long a time, the node is unlocked and still `deleting`.

    What the cloud forgot is sent again.
    """
    monkeypatch.setattr(home(NodeDeletion), "DELETE_SECONDS", 0.05 if trouble == "too slow" else 600.0)
    monkeypatch.setattr(home(Removal), "RESEND", Backoff(0.02, 60.0))
    site = make_site({"delete-seconds": 3600 if trouble in ("too slow", "lock lost") else 0.0})
    (node,) = site.serve("small")
    if trouble == "lock lost":
        node.state = states.DELETING
        zk.nodes.lock_and_save(node)
        task = site.provider.startNodeCleanup(node)
        wait_for("it was sent", lambda: site.adapter.calls["delete"])
        zk.unlockNode(node)
        task.join(DEADLINE_SECONDS)
        assert not task.is_alive()
    else:
        site.cloud.set(down=trouble == "down")
        site.adapter.swallow_deletes = 2 if trouble == "swallowed" else 0
        site.delete(node)
    if trouble == "swallowed":
        assert (zk.getNodes(), site.adapter.calls["delete"]) == ([], 3)
        return
    (stored,) = zk.nodeIterator()
    assert (stored.state, zk.isNodeLocked(stored)) == (states.DELETING, False)
