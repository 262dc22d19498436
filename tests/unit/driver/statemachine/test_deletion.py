# SPDX-License-Identifier: Apache-2.0
"""Deletions, and the end of a provider (rules X, G-5, G-14, L-17)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from nodepool.driver.statemachine import StateMachine, deletion, launch, leaks
from nodepool.exceptions import LaunchNodepoolException, LaunchStatusException, NotFound
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan.retries import Backoff
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.machine_driver import CreateMachine, DeleteMachine
from tests.support.wait import DEADLINE_SECONDS, wait_for
from tests.unit.driver.statemachine.conftest import MakeSite


def test_cloud_first(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-3: the znode goes when the instance is gone, and the provider is told."""
    site = make_site({"delete-seconds": 0.05})
    (node,) = site.serve("small")
    told: list[Any] = []
    monkeypatch.setattr(
        site.provider, "nodeDeletedNotification", lambda gone: told.append((gone.id, len(site.cloud.instances())))
    )
    site.delete(node)
    assert told == [(node.id, 0)]
    assert zk.getNodes() == []


def test_gone_already(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """X-4: not found is success."""
    site = make_site()
    (node,) = site.serve("small")
    site.cloud.delete(node.external_id)
    site.delete(node)
    assert zk.getNodes() == []


def test_machine_cannot_even_be_made(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-4: an adapter may raise NotFound at once."""
    site = make_site()
    (node,) = site.serve("small")

    def refuse(external_id: Any, log: Any) -> Any:
        raise NotFound(external_id)

    with monkeypatch.context() as patch:
        patch.setattr(site.adapter, "getDeleteStateMachine", refuse)
        site.delete(node)
    assert zk.getNodes() == []


def test_failure_unlocks(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """X-5: after an error of the cloud the node is unlocked and still `deleting`; the next try works."""
    site = make_site()
    (node,) = site.serve("small")
    site.cloud.set(down=True)
    site.delete(node)
    (stored,) = zk.nodeIterator()
    assert stored.state == states.DELETING
    assert not zk.isNodeLocked(stored)
    site.cloud.set(down=False)
    site.delete(stored)
    assert zk.getNodes() == []
    assert site.cloud.instances() == []


def test_too_slow(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """X-5: a deletion that does not end is given up before the launcher's own patience ends."""
    monkeypatch.setattr(deletion, "DELETE_SECONDS", 0.05)
    site = make_site({"delete-seconds": 3600})
    (node,) = site.serve("small")
    site.delete(node)
    (stored,) = zk.nodeIterator()
    assert not zk.isNodeLocked(stored)


def test_swallowed_deletion_is_sent_again(make_site: MakeSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delete that the cloud accepted and forgot."""
    monkeypatch.setattr(launch, "RESEND", Backoff(0.02, 60.0))
    site = make_site()
    (node,) = site.serve("small")
    site.adapter.swallow_deletes = 2
    site.delete(node)
    assert site.cloud.instances() == []
    assert site.adapter.calls["delete"] == 3


@pytest.mark.parametrize("instances", [0, 1, 2])
def test_node_without_external_id(make_site: MakeSite, zk: MemoryZooKeeper, instances: int) -> None:
    """F-1: a launcher that died in the middle of a creation: what it made is found by its metadata."""
    site = make_site()
    node = Node("small")
    node.provider, node.pool, node.state = "nowhere", "main", states.BUILDING
    zk.storeNode(node)
    metadata = {"nodepool_node_id": node.key, "nodepool_provider_name": "nowhere", "nodepool_pool_name": "main"}
    for _ in range(instances):
        site.cloud.create(f"np{node.id}", metadata=metadata, resources={})
    site.cloud.create("other", metadata={**metadata, "nodepool_provider_name": "elsewhere"}, resources={})
    site.delete(node)
    assert zk.getNodes() == []
    assert [instance.name for instance in site.cloud.instances()] == ["other"]


@pytest.mark.parametrize(
    ("error", "searched"), [(LaunchNodepoolException("no such flavor"), False), (LaunchStatusException("broken"), True)]
)
def test_node_that_was_refused_is_not_searched_for(
    make_site: MakeSite, zk: MemoryZooKeeper, error: Exception, searched: bool
) -> None:
    """X-2: where the launch knows that nothing was made, the node goes at once, and its place in the quota is free."""
    site = make_site({"launch-retries": 1})

    def refuse(machine: StateMachine) -> None:
        if isinstance(machine, CreateMachine):
            raise error

    site.adapter.hooks.append(refuse)
    site.fail("small")
    (node,) = zk.nodeIterator()
    lists = site.adapter.calls["list"]
    site.delete(node.copy())
    assert zk.getNodes() == []
    assert (site.adapter.calls["list"] > lists) is searched


def test_instance_of_a_dead_launcher_that_comes_late(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher died in the middle of the creation; the instance shows when its node is gone."""
    monkeypatch.setattr(leaks, "LOOK_AGAIN_SECONDS", 0.05)
    site = make_site()
    node = Node("small")
    node.provider, node.pool, node.state = "nowhere", "main", states.BUILDING
    zk.storeNode(node)
    site.delete(node)
    assert zk.getNodes() == []
    metadata = {"nodepool_node_id": node.key, "nodepool_provider_name": "nowhere", "nodepool_pool_name": "main"}
    site.cloud.create(f"np{node.id}", metadata=metadata, resources={})
    wait_for("the late instance is gone", lambda: not site.cloud.instances())


def test_node_without_external_id_waits_for_the_cloud(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """As long as nobody knows whether there is an instance the node stays."""
    site = make_site()
    node = Node("small")
    node.provider, node.pool = "nowhere", "main"
    zk.storeNode(node)
    site.cloud.set(down=True)
    site.delete(node)
    assert zk.getNodes() == [node.id]
    assert not zk.isNodeLocked(node)


def test_deletion_in_the_middle_of_a_creation(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """A launch of ours whose node is deleted by the launcher ends first; its instance is not forgotten."""
    site = make_site()
    inside, go = threading.Event(), threading.Event()

    def block(machine: StateMachine) -> None:
        if isinstance(machine, CreateMachine):
            inside.set()
            go.wait(30)

    site.adapter.hooks.append(block)
    handler = site.worker.accept(site.worker.submit("small"))
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
    wait_for("the instance is gone", lambda: not site.cloud.instances())
    assert zk.getNodes() == []
    assert handler.launchesComplete()


def test_lock_was_lost(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """The launcher gave up before us: the node is not ours any more."""
    site = make_site({"delete-seconds": 3600})
    (node,) = site.serve("small")
    node.state = states.DELETING
    zk.nodes.lock_and_save(node)
    task = site.provider.startNodeCleanup(node)
    wait_for("it was sent", lambda: site.adapter.calls["delete"])
    zk.unlockNode(node)
    task.join(DEADLINE_SECONDS)
    assert not task.is_alive()
    assert zk.getNodes() == [node.id]


def test_by_external_id(make_site: MakeSite) -> None:
    """2: cleanupNode and waitForNodeCleanup; an error reaches who waits."""
    site = make_site()
    (node,) = site.serve("small")

    def fail(machine: StateMachine) -> None:
        if isinstance(machine, DeleteMachine):
            raise ZeroDivisionError("mistake")

    site.adapter.hooks.append(fail)
    site.provider.cleanupNode(node.external_id)
    with pytest.raises(ZeroDivisionError):
        site.provider.waitForNodeCleanup(node.external_id)
    site.adapter.hooks.clear()
    site.provider.cleanupNode(node.external_id)
    site.provider.waitForNodeCleanup(node.external_id)
    assert site.cloud.instances() == []


def test_replaced_provider_finishes(make_site: MakeSite) -> None:
    """G-5, L-17: what runs when the provider is replaced ends well, then the adapter is stopped."""
    old = make_site({"hang": True})
    handler = old.worker.accept(old.worker.submit("small"))
    wait_for("the instance is there", old.cloud.instances)
    old.provider.idle()
    new = make_site({"hang": True})
    old.provider.stop()
    assert not old.adapter.stopped.is_set()
    old.cloud.set(hang=False)
    assert old.worker.finish(handler, DEADLINE_SECONDS).state == states.FULFILLED
    wait_for("the old adapter is stopped", old.adapter.stopped.is_set)
    assert len(new.serve("small")) == 1


def test_launch_on_a_provider_that_has_ended(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """A pass that still has the old provider fails to launch; nothing hangs."""
    site = make_site()
    site.serve("small")
    site.provider.stop()
    wait_for("it has ended", site.adapter.stopped.is_set)
    request, _ = site.worker.serve("small", timeout=DEADLINE_SECONDS)
    assert request.state == states.FAILED
    assert site.cloud.calls["create"] == 1


def test_shutdown_does_not_wait_for_the_cloud(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """G-14: nodes are left `building`, with their external_id, for whoever comes next."""
    site = make_site({"hang": True, "launch-timeout": 3600})
    site.worker.accept(site.worker.submit("small"))
    wait_for("the instance is known", lambda: [node for node in zk.nodeIterator() if node.external_id])
    site.provider.stop()
    joined = threading.Thread(target=site.provider.join)
    joined.start()
    joined.join(DEADLINE_SECONDS)
    assert not joined.is_alive()
    assert [node.state for node in zk.nodeIterator()] == [states.BUILDING]
    assert site.adapter.stopped.is_set()
