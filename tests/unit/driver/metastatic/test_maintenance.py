# SPDX-License-Identifier: Apache-2.0
"""What operators take out of service: backing providers (T-13, T-14, MT-6), and the provider itself (G-6)."""

from __future__ import annotations

import pytest

from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.metastatic.backing import BackingData
from nodepool.driver.metastatic.provider import backing_nodes, release
from nodepool.exceptions import ZKConflict
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.model.status import Maintenance, Mode, PoolComponent
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.backing_pool import BackingPool
from tests.support.wait import wait_for
from tests.unit.driver.metastatic.conftest import OWNER, MakeSite, Site

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
