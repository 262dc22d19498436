# SPDX-License-Identifier: Apache-2.0
"""Deletions, and the end of a provider (rules X, F-1, G-5)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from nodepool.driver.statemachine.deletion import NodeDeletion
from nodepool.driver.statemachine.launch import Removal
from nodepool.driver.statemachine.leaks import LeakLook
from nodepool.exceptions import LaunchNodepoolException, LaunchStatusException, NotFound
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan.retries import Backoff
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.unit.driver.statemachine.conftest import MakeSite, home


@pytest.fixture
def unknown(zk: MemoryZooKeeper) -> Node:
    """A node of a launcher that died in the middle of its creation."""
    node = Node("small")
    node.provider, node.pool, node.state = "nowhere", "main", states.BUILDING
    zk.storeNode(node)
    return node


def metadata(node: Node, provider: str = "nowhere") -> dict[str, str]:
    return {"nodepool_node_id": node.key, "nodepool_provider_name": provider, "nodepool_pool_name": "main"}


def refuse(external_id: Any, log: Any) -> Any:
    raise NotFound(external_id)


@pytest.mark.parametrize("trouble", ["down", "too slow", "lock lost", "swallowed", "not found at once"])
def test_trouble(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch, trouble: str) -> None:
    """X-3 to X-5: after an error of the cloud, or too long a time, the node is unlocked and still `deleting`.

    Its znode goes when the instance does not exist, and the provider hears of it. What the cloud forgot is sent again.
    """
    monkeypatch.setattr(home(NodeDeletion), "DELETE_SECONDS", 0.05 if trouble == "too slow" else 600.0)
    monkeypatch.setattr(home(Removal), "RESEND", Backoff(0.02, 60.0))
    site = make_site({"delete-seconds": 3600 if trouble in ("too slow", "lock lost") else 0.0})
    (node,) = site.serve("small")
    ended: list[Any] = []
    monkeypatch.setattr(site.provider, "nodeDeletedNotification", lambda node: ended.append((node.id, site.ids())))
    if trouble in ("swallowed", "not found at once"):
        if trouble == "swallowed":
            site.adapter.swallow_deletes = 2
        else:
            site.cloud.delete(node.external_id)
            monkeypatch.setattr(site.adapter, "getDeleteStateMachine", refuse)
        site.delete(node)
        assert (zk.getNodes(), site.adapter.calls["delete"]) == ([], 3 if trouble == "swallowed" else 0)
        assert ended == [(node.id, site.ids())]
        return
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
        site.delete(node)
    (stored,) = zk.nodeIterator()
    assert (stored.state, zk.isNodeLocked(stored), ended) == (states.DELETING, False, [])


@pytest.mark.parametrize("instances", [0, 1, 2])
def test_node_without_external_id(
    make_site: MakeSite, zk: MemoryZooKeeper, unknown: Node, monkeypatch: pytest.MonkeyPatch, instances: int
) -> None:
    """F-1: what was made is found by its metadata, also late. As long as nothing is known the node stays."""
    monkeypatch.setattr(home(LeakLook), "LOOK_AGAIN_SECONDS", 0.05)
    site = make_site()
    for _ in range(instances):
        site.cloud.create(f"np{unknown.id}", metadata=metadata(unknown), resources={})
    other = site.cloud.create("other", metadata=metadata(unknown, "elsewhere"), resources={})
    site.cloud.set(down=True)
    site.delete(unknown.copy())
    assert (zk.getNodes(), zk.isNodeLocked(unknown)) == ([unknown.id], False)
    site.cloud.set(down=False)
    (stored,) = zk.nodeIterator()
    site.delete(stored)
    assert (zk.getNodes(), site.ids()) == ([], [other.id])
    if instances == 0:
        site.cloud.create(f"np{unknown.id}", metadata=metadata(unknown), resources={})
        wait_for("the late instance does not exist", lambda: site.ids() == [other.id])


@pytest.mark.parametrize(
    ("error", "searched"), [(LaunchNodepoolException("no such flavor"), False), (LaunchStatusException("broken"), True)]
)
def test_node_that_was_refused(make_site: MakeSite, zk: MemoryZooKeeper, error: Exception, searched: bool) -> None:
    """X-2: where the launch knows that nothing was made, the node goes at once, and its place in the quota is free."""
    site = make_site({"launch-retries": 1})
    site.fail_creations(error)
    site.fail("small")
    (node,) = zk.nodeIterator()
    lists = site.adapter.calls["list"]
    site.delete(node.copy())
    assert (zk.getNodes(), site.adapter.calls["list"] > lists) == ([], searched)


def test_deletion_in_the_middle_of_a_creation(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """X-2: a launch of ours whose node is deleted by the launcher ends first; its instance is not forgotten."""
    site = make_site()
    inside, go = threading.Event(), threading.Event()

    def block(_: Any) -> None:
        inside.set()
        go.wait(30)

    site.before_creation(block)
    handler = site.accept("small")
    assert inside.wait(30)
    zk.deleteNodeRequest(handler.request)
    (locked,) = handler.nodeset
    zk.unlockNode(locked)
    (node,) = zk.nodeIterator()
    node.state = states.DELETING
    zk.nodes.lock_and_save(node)
    task = site.provider.startNodeCleanup(node)
    assert task.is_alive()
    go.set()
    task.join(DEADLINE_SECONDS)
    wait_for("there is no instance", lambda: not site.ids())
    assert (zk.getNodes(), handler.launchesComplete()) == ([], True)
