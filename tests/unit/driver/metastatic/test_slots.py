# SPDX-License-Identifier: Apache-2.0
"""Slots of backing nodes: requested, claimed, given out, shared, freed, found again and released (rules T)."""

from __future__ import annotations

import time

import pytest

from nodepool.driver.metastatic.provider import SlotAllocator
from nodepool.exceptions import ZKConnectionError
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.wait import wait_for
from tests.unit.driver.metastatic.conftest import MakeSite, change_user_data, place, set_constant

AWAY = ZKConnectionError("connection lost")
THREE = {"max-parallel-jobs": 3}


def state_of(zk: MemoryZooKeeper, node_id: str) -> str | None:
    node = zk.getNode(node_id)
    return None if node is None else node.state


# -- release --


def test_released_when_empty(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """T-8: `used` and unlocked in one write, a few in each pass, and in the end all, also if answers were lost. From
    idle() on they are the successor's (G-5).
    """
    set_constant(monkeypatch, SlotAllocator, "MOST_RELEASES", 2)
    save_and_release, calls = zk.nodes.save_and_release, list[str]()

    def lose(node: Node, contender: str) -> None:
        calls.append(node.key)
        if len(calls) != 1:
            save_and_release(node, contender)
        if len(calls) <= 2:
            raise AWAY

    monkeypatch.setattr(zk.nodes, "save_and_release", lose)
    site = make_site({"grace-time": 0})
    nodes = site.serve(*["small"] * 9)
    site.delete(nodes[0])
    site.pass_now()
    assert len(site.backing()) == 5
    site.delete(*nodes[1:])
    site.wait_empty()
    assert (len(calls), len(set(calls))) == (6, 5)
    (node,) = site.serve()
    site.provider.idle()
    site.delete(node)
    site.pass_now()
    assert site.backing()
    make_site({"grace-time": 0})
    site.wait_empty()


def test_grace_goes_on_after_a_restart(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-6, T-8, T-9: since when a backing node is empty is noted, and forgotten when it is used again. Beyond max-age
    it gets no new nodes, and no grace.
    """
    set_constant(monkeypatch, SlotAllocator, "NOTE_IDLE_SECONDS", 0.0)
    site = make_site({"grace-time": 1000, "max-age": 1000})
    for _ in range(2):
        (node,) = site.serve()
        ((backing_id, data),) = site.backing().items()
        assert data["idle_since"] is None
        site.delete(node)
        wait_for("it is noted", lambda: all(found["idle_since"] is not None for found in site.backing().values()))
    site.end()
    change_user_data(zk, backing_id, idle_since=time.time() - 900)
    site = make_site({"grace-time": 1000, "max-age": 1000})
    site.pass_now()
    assert site.backing()
    (old,) = site.serve()
    change_user_data(zk, backing_id, launched=time.time() - 1001)
    (new,) = site.serve()
    assert place(new)[0] != place(old)[0] == backing_id
    site.delete(old)
    wait_for("the old one is released", lambda: list(site.backing()) == [place(new)[0]])
    site.delete(new)
    site.end()
    change_user_data(zk, place(new)[0], idle_since=time.time() - 1001)
    make_site({"grace-time": 1000}).wait_empty()


# -- scans and losses --


def test_lost(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """T-15: an idle node on it is deleted, one in use is named, no slot of it is used, and it is released then."""
    site = make_site({"grace-time": 0, **THREE})
    idle, used = site.serve("small", "small")
    idle.allocated_to = None
    used.state = states.IN_USE
    for node in (idle, used):
        zk.storeNode(node)
    lost = place(idle)[0]
    change_user_data(zk, lost, failed=True, lost=["Spot", "the cloud wanted it back"])
    wait_for("the idle one is deleted", lambda: state_of(zk, idle.key) == states.DELETING)
    found = {}

    def named() -> bool:
        site.provider.cleanupLeakedResources()
        found.update({loss.node_id: (loss.code, loss.text) for loss in site.provider.lostInstances()})
        return len(found) == 2

    wait_for("both are named", named)
    text = f"backing node {lost} is lost: the cloud wanted it back; the node is"
    assert found == {idle.key: ("Spot", f"{text} deleted"), used.key: ("Spot", f"{text} in-use")}
    site.provider.cleanupLeakedResources()
    assert (state_of(zk, used.key), site.provider.lostInstances()) == (states.IN_USE, [])
    (other,) = site.serve()
    assert place(other)[0] != lost
    site.delete(idle, used)
    wait_for("it is released", lambda: zk.getNode(lost) is None)


@pytest.mark.parametrize(
    ("state", "user_data", "allocated_to"),
    [
        (states.READY, None, "100-0000009999"),
        (states.IN_USE, "{broken", None),
        (states.USED, "as it was", None),
        (states.DELETING, "as it was", None),
    ],
)
def test_lock_left_behind(
    make_site: MakeSite, zk: MemoryZooKeeper, state: str, user_data: str | None, allocated_to: str | None
) -> None:
    """T-12: a launcher was killed between two writes, or the node was changed: it is unlocked when it is empty, at the
    second look.
    """
    site = make_site()
    (user,) = site.serve()
    ((backing_id, _),) = site.backing().items()
    node = zk.getNode(backing_id)
    assert node is not None
    given = node.user_data if user_data == "as it was" else user_data
    node.load({**node.to_dict(0), "state": state, "allocated_to": allocated_to, "user_data": given})
    zk.storeNode(node)
    for _ in range(2):
        site.pass_now(sweep=True)
    assert zk.isNodeLocked(node), "a node is on it"
    site.delete(user)
    site.pass_now(sweep=True)
    assert zk.isNodeLocked(node), "one look is not enough"
    site.pass_now(sweep=True)
    wait_for("it is unlocked", lambda: not zk.isNodeLocked(node))
