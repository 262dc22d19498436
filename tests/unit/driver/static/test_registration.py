# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.static.registration`: what races and errors leave behind."""

from __future__ import annotations

import logging
import threading

import pytest

from nodepool.driver.static.registration import Quarantines, StaticRegistry
from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan.static import HostFacts, HostId, HostSpec, new_node
from tests.support.failing_zk import FailingZooKeeper

SPEC = HostSpec(HostId("h1", "zuul", 22), "main", ("small",), slots=2)
HOSTS = {SPEC.id: SPEC}


@pytest.fixture
def zk() -> FailingZooKeeper:
    return FailingZooKeeper()


@pytest.fixture
def idle() -> threading.Event:
    return threading.Event()


@pytest.fixture
def registry(zk: FailingZooKeeper, idle: threading.Event) -> StaticRegistry:
    return StaticRegistry(zk, "lab", HOSTS, Quarantines(zk, HOSTS), idle, logging.getLogger("test"))


def stored(zk: FailingZooKeeper, provider: str = "lab", slot: int = 0) -> Node:
    return zk.add(new_node(provider, SPEC, slot, HostFacts()))


def test_registers_only_what_is_missing(zk: FailingZooKeeper, registry: StaticRegistry) -> None:
    """S-10: nodes of this provider count, in any state; those of others do not."""
    stored(zk, slot=1)
    stored(zk, provider="elsewhere", slot=0)
    assert registry.register({SPEC.id: HostFacts()}) == 1
    assert registry.register({SPEC.id: HostFacts()}) == 0
    assert sorted((node.provider, node.slot) for node in zk.all_nodes()) == [
        ("elsewhere", 0),
        ("lab", 0),
        ("lab", 1),
    ]


def test_node_that_lost_its_slot_has_no_successor(zk: FailingZooKeeper, registry: StaticRegistry) -> None:
    """S-10: the next pass registers the slot that is empty then."""
    node = stored(zk)
    node.slot = None
    zk.take(node)
    assert not registry.recycle(node, HostFacts())
    assert zk.all_nodes() == []


def test_node_that_was_given_a_slot_meanwhile(
    zk: FailingZooKeeper, registry: StaticRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-10: by another launcher, and the cache does not know it yet: no slot is filled twice."""
    seen = stored(zk, slot=1).copy()
    seen.slot = None
    monkeypatch.setattr(zk, "nodeIterator", lambda cached=True: iter([seen]))
    assert registry.register({SPEC.id: HostFacts()}) == 1
    assert sorted(node.slot or 0 for node in zk.all_nodes()) == [0, 1]


def test_name_that_nobody_asks_for(
    zk: FailingZooKeeper, registry: StaticRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-1: somebody made a znode with a name that ZooKeeper takes and we do not; it is not looked for without end."""
    looks: list[int] = []

    def listing() -> list[str]:
        looks.append(1)
        assert len(looks) < 3, "it would look for ever"
        return ["no\N{NO-BREAK SPACE}name"]

    monkeypatch.setattr(zk, "getNodes", listing)
    assert registry.register({SPEC.id: HostFacts()}) == 2


def test_hosts_that_were_not_checked_are_not_registered(zk: FailingZooKeeper, registry: StaticRegistry) -> None:
    """S-4: only hosts that answered."""
    assert registry.register({}) == 0
    assert zk.all_nodes() == []


def test_node_that_the_cache_does_not_know_yet_counts(
    zk: FailingZooKeeper, registry: StaticRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-10: another launcher has just registered it."""
    stored(zk, slot=0)
    stored(zk, slot=1)
    monkeypatch.setattr(zk, "nodeIterator", lambda cached=True: iter(()))
    assert registry.register({SPEC.id: HostFacts()}) == 0


def test_node_that_was_taken_meanwhile_is_left_alone(zk: FailingZooKeeper, registry: StaticRegistry) -> None:
    """S-6, S-7: every write is fenced by the version that the decision was made on."""
    node = stored(zk)
    zk.change(node.key, allocated_to="200-0000000001")
    assert not registry.update(node, {"type": ["big"]})
    assert not registry.deregister(node, "test")
    (left,) = zk.all_nodes()
    assert (left.state, left.type, left.allocated_to) == (states.READY, ["small"], "200-0000000001")
    assert not zk.isNodeLocked(left)


def test_locked_node_is_left_alone(zk: FailingZooKeeper, registry: StaticRegistry) -> None:
    """S-7: somebody is about to use it."""
    node = stored(zk)
    zk.take(node.copy())
    assert not registry.update(node, {"type": ["big"]})
    assert not registry.deregister(node, "test")
    assert zk.all_nodes()[0].state == states.READY


def test_deregistration_that_breaks_off_is_found_again(zk: FailingZooKeeper, registry: StaticRegistry) -> None:
    """S-7: the node ends `deleting` and unlocked, which is what the launchers' deletion looks for."""
    node = stored(zk)
    zk.fail["deleteNode"] = ZKConnectionError("away")
    with pytest.raises(ZKConnectionError):
        registry.deregister(node, "test")
    (left,) = zk.all_nodes()
    assert left.state == states.DELETING
    assert not zk.isNodeLocked(left)


def test_idle_registry_writes_nothing(zk: FailingZooKeeper, registry: StaticRegistry, idle: threading.Event) -> None:
    """S-13: not even what was decided before."""
    node = stored(zk)
    idle.set()
    assert registry.register({SPEC.id: HostFacts()}) == 0
    assert not registry.update(node, {"type": ["big"]})
    assert not registry.deregister(node, "test")
    assert [found.version for found in zk.all_nodes()] == [0]


def test_lost_lock_is_no_error(
    zk: FailingZooKeeper, registry: StaticRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """S-8: another launcher removed the node after our session was lost."""
    node = stored(zk)
    zk.take(node)
    zk.fail["replaceNode"] = ZKConflict("gone")
    zk.fail["unlockNode"] = ZKConflict("gone")
    assert not registry.recycle(node, HostFacts())
    assert "Traceback" not in caplog.text


def test_node_of_a_slot_that_another_one_has_gets_no_successor(zk: FailingZooKeeper, registry: StaticRegistry) -> None:
    """S-10: a released launcher registered the slot twice; the last one to go has a successor."""
    first, second = stored(zk), stored(zk)
    for node in (second, first):
        zk.take(node)
    assert not registry.recycle(second, HostFacts())
    assert [node.id for node in zk.all_nodes()] == [first.id]
    assert registry.recycle(first, HostFacts())
    assert [(node.state, node.slot) for node in zk.all_nodes()] == [(states.READY, 0)]


def test_nodes_of_other_slots_are_not_in_the_way(zk: FailingZooKeeper, registry: StaticRegistry) -> None:
    """S-8, S-10: nor those of other providers, and those that do not tell their slot."""
    node = stored(zk)
    stored(zk, slot=1)
    stored(zk, provider="elsewhere")
    zk.change(stored(zk, slot=1).key, slot=None)
    assert registry.others_in_slot(node) == []
    zk.take(node)
    assert registry.recycle(node, HostFacts())


def test_without_a_cache_zookeeper_is_asked(zk: FailingZooKeeper, idle: threading.Event) -> None:
    """S-10: `nodepool delete --now`; and what it cannot find out leaves the node for the next try."""
    kept, node = stored(zk), stored(zk)
    zk.cache = None  # type: ignore[assignment]
    registry = StaticRegistry(zk, "lab", HOSTS, Quarantines(zk, HOSTS), idle, logging.getLogger("test"))
    zk.take(node)
    zk.fail["nodeIterator"] = ZKConnectionError("away")
    assert not registry.recycle(node, HostFacts())
    assert len(zk.all_nodes()) == 2
    assert not zk.isNodeLocked(node)
    del zk.fail["nodeIterator"]
    zk.take(node)
    assert not registry.recycle(node, HostFacts())
    assert [left.id for left in zk.all_nodes()] == [kept.id]
