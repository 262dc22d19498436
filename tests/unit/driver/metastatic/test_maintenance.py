# SPDX-License-Identifier: Apache-2.0
"""What operators take out of service: backing providers (T-13, T-14, MT-6), and the provider itself (G-6)."""

from __future__ import annotations

import pytest

from nodepool.clock import wall_time
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.metastatic.provider import backing_nodes, release
from nodepool.driver.metastatic.slots import BackingData
from nodepool.exceptions import ZKConflict
from nodepool.model import states
from nodepool.model.component import PoolComponent
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.backing_pool import BackingPool
from tests.support.wait import wait_for
from tests.unit.driver.metastatic.conftest import OWNER, MakeSite, Site, place

PAUSE = Maintenance("provider", "backing", Mode.PAUSE, "network", "alice@desk", 1000.0)


def register(zk: MemoryZooKeeper, provider: str = "backing", *, paused: bool = True) -> PoolComponent:
    component = PoolComponent("l1")
    component.id = f"l1-PoolWorker.{provider}-main-0"
    component.provider_name, component.name = provider, "main"
    component.supported_labels, component.paused = ["big"], paused
    zk.pools.append(component)
    return component


def waiting(site: Site, pool: BackingPool) -> NodeRequestHandler:
    """A request whose node waits for a backing node that is not made."""
    pool.hold = True
    handler = site.begin()
    wait_for("a backing node is requested", site.requests)
    return handler


def held(site: Site) -> dict[str, ReasonCode]:
    return {name: reason.code for name, reason in site.provider.heldLabels("main").items()}


# -- nothing new is begun


def test_labels_are_held(zk: MemoryZooKeeper, make_site: MakeSite, pool: BackingPool) -> None:
    """T-13, MT-11: as long as no pool makes backing nodes, for labels of that backing label. A pool that declined to
    does not count, until its request is over.
    """
    site = make_site(None, {"name": "tiny", "backing-label": "other"})
    register(zk)
    assert held(site) == {}
    zk.maintenance.put(PAUSE)
    assert held(site) == {"small": ReasonCode.BACKING_HELD}
    assert site.provider.heldLabels("main")["small"].text.endswith("backing is paused by alice@desk: network")
    assert site.provider.heldLabels("elsewhere") == {}
    other = register(zk, "other", paused=False)
    assert held(site) == {}
    handler = waiting(site, pool)
    (request,) = [request for request in zk.nodeRequestIterator() if request.key in site.requests()]
    request.declined_by = [other.id]
    zk.storeNodeRequest(request)
    wait_for("it cannot", lambda: held(site))
    pool.hold = False
    pool.look()
    site.finish(handler)
    wait_for("the declined request is forgotten", lambda: not held(site))


def test_free_slots_are_given_out(zk: MemoryZooKeeper, make_site: MakeSite) -> None:
    """T-13: only the launcher of the backing provider is paused: what is there is used."""
    site = make_site()
    (first,) = site.serve()
    register(zk)
    zk.maintenance.put(Maintenance("launcher", "l1", Mode.PAUSE))
    wait_for("there is a slot", lambda: not held(site))
    (second,) = site.serve()
    assert {place(first), place(second)} == {(place(first)[0], slot) for slot in (0, 1)}
    wait_for("there is none", lambda: held(site))
    site.delete(second)
    wait_for("there is one again", lambda: not held(site))


@pytest.mark.parametrize("begun", [False, True])
def test_launch_that_waits(zk: MemoryZooKeeper, make_site: MakeSite, pool: BackingPool, begun: bool) -> None:
    """T-13, MT-6: it is aborted, which is no failed attempt, and the next one works; if its backing node is being built
    it goes on. A node that is ready stays.
    """
    site = make_site({"max-parallel-jobs": 1})
    handler = waiting(site, pool)
    (launched,) = handler.nodeset
    if begun:
        node = Node("big")
        node.state, node.provider, node.pool = states.BUILDING, "backing", "main"
        node.allocated_to, node.requestor = site.requests()[0], OWNER
        zk.storeNode(node)
    handler.stop_waiting()
    if begun:
        site.pass_now()
        site.provider.stopWaiting([launched.key, "unknown"])
        site.pass_now()
    else:
        wait_for("the launch has ended", lambda: not handler.alive_thread_count)
        assert (launched.state, site.worker.launch_error(launched)) == (states.ABORTED, "")
        wait_for("the backing request is taken back", lambda: not site.requests())
        handler.stop_waiting()
    assert handler.alive_thread_count == begun
    pool.hold = False
    pool.look()
    site.finish(handler)


# -- nothing new on backing nodes


@pytest.mark.parametrize(
    "record",
    [
        PAUSE,
        Maintenance("pool", "backing/main", Mode.DRAIN),
        Maintenance("label", "big", Mode.PAUSE),
        Maintenance("host", "host1", Mode.QUARANTINE),
    ],
    ids=lambda record: record.kind,
)
def test_backing_nodes_out_of_service(zk: MemoryZooKeeper, make_site: MakeSite, record: Maintenance) -> None:
    """T-14: who is on it stays; the next one gets a new one, and after the end a slot that is free."""
    site = make_site()
    (first,) = site.serve()
    zk.maintenance.put(record)
    (second,) = site.serve()
    assert place(second)[0] != place(first)[0]
    site.delete(second)
    zk.maintenance.remove(record.kind, record.name)
    assert zk.getNode(first.key) is not None
    (third,) = site.serve()
    assert place(third) == (place(first)[0], 1)


def test_pause_that_ends_by_itself(zk: MemoryZooKeeper, make_site: MakeSite, pool: BackingPool) -> None:
    """MT-9, T-14: what waits gets the slot that may be given out again; no record changes for that."""
    site = make_site()
    (first,) = site.serve()
    pool.hold = True
    zk.maintenance.put(Maintenance("provider", "backing", Mode.PAUSE, until=wall_time() + 1.0))
    (second,) = site.finish(site.begin())
    assert place(second) == (place(first)[0], 1)


# -- the provider is removed


def backing_node(zk: MemoryZooKeeper, owner: str = OWNER, holder: str = OWNER, state: str = states.IN_USE) -> Node:
    node = Node("big")
    node.provider, node.state = "backing", state
    node.user_data = BackingData(owner, "small", 1, False, 0.0, (None,)).encode()
    zk.storeNode(node)
    if holder:
        zk.nodes.lock_for_good(node, holder)
    return node


def test_backing_nodes_of_a_removed_provider(zk: MemoryZooKeeper) -> None:
    """G-6, reference/zookeeper 5.6: owner and lock must both match. One that changed meanwhile is not given back."""
    mine = backing_node(zk)
    other = "NodePool:metastatic:other"
    for owner, holder, state in (
        *((other, other, states.IN_USE), (OWNER, "another", states.IN_USE), (OWNER, "", states.IN_USE)),
        *((OWNER, OWNER, states.HOLD), (other, OWNER, states.IN_USE)),
    ):
        backing_node(zk, owner, holder, state)
    zk.storeNode(Node("big"))
    ((node, contender),) = backing_nodes(zk, "shared")
    assert node.id == mine.id
    release(zk, node, contender)
    stored = zk.getNode(mine.key)
    assert stored is not None
    assert (stored.state, zk.isNodeLocked(stored)) == (states.USED, False)
    assert not list(backing_nodes(zk, "shared"))
    backing_node(zk)
    ((node, contender),) = backing_nodes(zk, "shared")
    zk.nodes.save_and_release(node.copy(), contender)
    with pytest.raises(ZKConflict):
        release(zk, node, contender)
