# SPDX-License-Identifier: Apache-2.0
"""What operators take out of service, and what becomes of launches on backing nodes (T-13, T-14)."""

from __future__ import annotations

import pytest

from nodepool.clock import wall_time
from nodepool.driver.handler import NodeRequestHandler
from nodepool.model import states
from nodepool.model.component import PoolComponent
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.model.node import Node
from nodepool.model.reasons import ReasonCode
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.backing_pool import BackingPool
from tests.support.wait import wait_for
from tests.unit.driver.metastatic.conftest import MakeSite, Site, place

PAUSE = Maintenance("provider", "backing", Mode.PAUSE, "network", "alice@desk", 1000.0)


def register(zk: MemoryZooKeeper, provider: str = "backing", *, paused: bool = True) -> PoolComponent:
    component = PoolComponent("l1")
    component.id = f"l1-PoolWorker.{provider}-main-0"
    component.provider_name, component.name = provider, "main"
    component.supported_labels, component.paused = ["big"], paused
    zk.pools.append(component)
    return component


def waiting(site: Site, pool: BackingPool) -> NodeRequestHandler:
    """A request whose node waits for a backing node that nobody makes."""
    pool.hold = True
    handler = site.begin()
    wait_for("a backing node is asked for", site.requests)
    return handler


def node_of(handler: NodeRequestHandler) -> Node:
    (node,) = handler.nodeset
    return node


def test_labels_are_held_while_nobody_can_make_backing_nodes(zk: MemoryZooKeeper, make_site: MakeSite) -> None:
    """T-13, MT-11: the reason names who paused what; a label of another backing label is served."""
    site = make_site(None, {"name": "tiny", "backing-label": "other"})
    register(zk)
    assert site.provider.heldLabels("main") == {}
    zk.maintenance.put(PAUSE)
    held = site.provider.heldLabels("main")
    assert held.keys() == {"small"}
    assert held["small"].code is ReasonCode.BACKING_HELD
    assert held["small"].text.endswith("provider backing is paused by alice@desk: network")
    assert site.provider.heldLabels("gone") == {}
    zk.maintenance.remove("provider", "backing")
    assert site.provider.heldLabels("main") == {}


def test_another_pool_can_make_backing_nodes(zk: MemoryZooKeeper, make_site: MakeSite, pool: BackingPool) -> None:
    """T-13: until it declines to, and again after a while, or when it has made one."""
    site = make_site()
    register(zk)
    other = register(zk, "other", paused=False)
    zk.maintenance.put(PAUSE)
    assert site.provider.heldLabels("main") == {}
    handler = waiting(site, pool)
    (request,) = [request for request in zk.nodeRequestIterator() if request.key in site.requests()]
    request.declined_by = [other.id]
    zk.storeNodeRequest(request)
    wait_for("it cannot", lambda: site.provider.heldLabels("main"))
    pool.hold = False
    pool.look()
    site.finish(handler)
    zk.maintenance.remove("provider", "backing")
    zk.maintenance.put(PAUSE)
    wait_for("the declined request is forgotten", lambda: not site.provider.heldLabels("main"))


def test_free_slots_are_given_out(zk: MemoryZooKeeper, make_site: MakeSite) -> None:
    """T-13: only the launcher of the backing provider is paused: what is there is used; the pools are told."""
    site = make_site()
    (first,) = site.serve()
    register(zk)
    zk.maintenance.put(Maintenance("launcher", "l1", Mode.PAUSE))
    wait_for("there is a slot", lambda: not site.provider.heldLabels("main"))
    (second,) = site.serve()
    assert {place(first), place(second)} == {(site.wait_backing(1)[0], slot) for slot in (0, 1)}
    wait_for("there is none", lambda: site.provider.heldLabels("main"))
    site.delete(second)
    wait_for("there is one again", lambda: not site.provider.heldLabels("main"))


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
def test_nothing_new_on_backing_nodes_that_are_out_of_service(
    zk: MemoryZooKeeper, make_site: MakeSite, record: Maintenance
) -> None:
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


def test_a_launch_that_nobody_began_is_aborted(zk: MemoryZooKeeper, make_site: MakeSite, pool: BackingPool) -> None:
    """T-13, MT-6: it is no failed attempt, the backing request goes, and the next launch works."""
    site = make_site({"max-parallel-jobs": 1})
    handler = waiting(site, pool)
    site.provider.stopWaiting([node_of(handler).key])
    wait_for("the launch has ended", lambda: not handler.alive_thread_count)
    assert node_of(handler).state == states.ABORTED
    wait_for("the backing request is taken back", lambda: not site.requests())
    assert site.worker.launch_error(node_of(handler)) == ""
    pool.hold = False
    site.finish(handler)


def test_a_launch_that_somebody_began_goes_on(zk: MemoryZooKeeper, make_site: MakeSite, pool: BackingPool) -> None:
    """T-13, MT-6."""
    site = make_site()
    handler = waiting(site, pool)
    (request_id,) = site.requests()
    node = Node("big")
    node.state, node.provider, node.pool = states.BUILDING, "backing", "main"
    node.allocated_to, node.requestor = request_id, "NodePool:metastatic:shared"
    zk.storeNode(node)
    site.provider.stopWaiting([node_of(handler).key])
    site.pass_now()
    site.provider.stopWaiting([node_of(handler).key, "unknown"])
    site.pass_now()
    assert handler.alive_thread_count == 1
    pool.hold = False
    pool.look()
    site.finish(handler)


def test_the_handler_names_nodes_that_are_built(make_site: MakeSite, pool: BackingPool) -> None:
    """MT-6: the pool says it in every pass; one that is ready stays."""
    site = make_site({"max-parallel-jobs": 1})
    handler = waiting(site, pool)
    handler.stop_waiting()
    wait_for("the launch has ended", lambda: not handler.alive_thread_count)
    handler.stop_waiting()
    pool.hold = False
    site.finish(handler)


def test_a_pause_that_ends_by_itself(zk: MemoryZooKeeper, make_site: MakeSite, pool: BackingPool) -> None:
    """MT-9, T-14: who waits gets the slot that may be given out again, and nobody has to tell."""
    site = make_site()
    (first,) = site.serve()
    pool.hold = True
    zk.maintenance.put(Maintenance("provider", "backing", Mode.PAUSE, until=wall_time() + 1.0))
    (second,) = site.finish(site.begin())
    assert place(second) == (place(first)[0], 1)


def test_commands_know_nothing_of_it(zk: MemoryZooKeeper, make_site: MakeSite) -> None:
    """A provider that is not started holds nothing and waits for nothing."""
    site = make_site()
    site.provider._allocator = None
    zk.maintenance.put(PAUSE)
    assert site.provider.heldLabels("main") == {}
    site.provider.stopWaiting(["1"])
