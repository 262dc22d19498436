# SPDX-License-Identifier: Apache-2.0
"""Slots are given out, shared, freed and found again (rules T-1, T-2, T-5 to T-7)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from nodepool.exceptions import ZKConflict
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.backing_pool import BackingPool
from tests.support.wait import wait_for, watching
from tests.unit.driver.metastatic.conftest import OWNER, MakeSite, Site, place


def test_one_node(make_site: MakeSite) -> None:
    """T-1, T-3, T-5: what is stored with the node, and with its backing node."""
    site = make_site()
    (node,) = site.serve()
    (backing_id,) = site.wait_backing(1)
    backing = site.zk.getNode(backing_id)
    assert backing is not None
    assert place(node) == (backing_id, 0)
    assert node.external_id == node.id == node.driver_data["node"]
    assert node.driver_data["metadata"]["nodepool_node_id"] == node.id
    copied = ("interface_ip", "public_ipv4", "cloud", "region", "az", "host_keys")
    login = ("username", "python_path", "connection_type", "connection_port", "shell_type")
    assert [getattr(node, name) for name in (*copied, *login)] == [getattr(backing, name) for name in (*copied, *login)]
    assert node.attributes == {"backing": "yes", "both": "pool"}
    assert node.resources == {"cores": 0, "instances": 1, "ram": 0}
    data = site.backing()[backing_id]
    assert data["launched"] > 0
    assert {**data, "launched": 0} == {
        "owner": OWNER,
        "label": "small",
        "slots": 2,
        "failed": False,
        "launched": 0,
        "nodes": [node.id, None],
        "idle_since": None,
    }
    assert site.zk.getNodeLockContenders(backing_id) == [OWNER]
    wait_for("the backing request is deleted", lambda: not site.requests())


def test_backing_request(make_site: MakeSite, zk: MemoryZooKeeper, pool: BackingPool) -> None:
    """T-1: priority 100, requestor, label, and what Zuul needs to read it."""
    pool.hold = True
    site = make_site()
    handler = site.begin()
    (request_id,) = wait_for("a backing request", site.requests)
    request = zk.getNodeRequest(request_id)
    assert request is not None
    assert request_id.startswith("100-")
    assert (request.node_types, request.reuse, request.provider) == (["big"], True, None)
    assert request.event_id
    pool.hold = False
    pool.look()
    site.finish(handler)


def test_pending_backing_node_is_shared(make_site: MakeSite, pool: BackingPool) -> None:
    """T-2: up to its slots."""
    pool.hold = True
    site = make_site()
    handlers = [site.begin() for _ in range(5)]
    wait_for("three requests", lambda: len(site.requests()) == 3)
    site.pass_now()
    assert len(site.requests()) == 3
    pool.hold = False
    pool.look()
    places = [place(node) for handler in handlers for node in site.finish(handler)]
    assert len(set(places)) == 5
    assert len(pool.served) == 3


def test_nodes_of_one_request_share(make_site: MakeSite, pool: BackingPool) -> None:
    """T-2: nodes of one request are as good as those of several."""
    site = make_site({"max-parallel-jobs": 4})
    nodes = site.serve("small", "small", "small")
    assert sorted(slot for _, slot in map(place, nodes)) == [0, 1, 2]
    assert len(pool.served) == 1


def test_labels_do_not_share(make_site: MakeSite) -> None:
    """T-1: a backing node is for one label."""
    site = make_site(None, {"name": "tiny", "backing-label": "big", "max-parallel-jobs": 2, "grace-time": 10_000})
    nodes = [*site.serve("small"), *site.serve("tiny"), *site.serve("small")]
    backing_ids = [place(node)[0] for node in nodes]
    assert backing_ids[0] == backing_ids[2] != backing_ids[1]
    assert {data["label"] for data in site.backing().values()} == {"small", "tiny"}


def test_freed_slots_are_used_again(make_site: MakeSite, pool: BackingPool) -> None:
    """T-7: the lowest free slot first."""
    site = make_site({"max-parallel-jobs": 3})
    nodes = site.serve("small", "small", "small")
    by_slot = {place(node)[1]: node for node in nodes}
    site.delete(by_slot[2], by_slot[0])
    assert [place(node)[1] for node in [*site.serve(), *site.serve()]] == [0, 2]
    assert len(pool.served) == 1


def test_who_waits_takes_a_slot_that_becomes_free(make_site: MakeSite, pool: BackingPool) -> None:
    """T-1: even if a backing request is on its way for it; that one is taken back."""
    site = make_site({"max-parallel-jobs": 1})
    (first,) = site.serve()
    wait_for("its backing request is deleted", lambda: not site.requests())
    pool.hold = True
    handler = site.begin()
    wait_for("a backing request", site.requests)
    site.delete(first)
    (second,) = site.finish(handler)
    assert place(second) == place(first)
    wait_for("the backing request is taken back", lambda: not site.requests())


@pytest.mark.parametrize("old", [False, True], ids=["ours", "older launcher"])
def test_restart(make_site: MakeSite, zk: MemoryZooKeeper, pool: BackingPool, old: bool) -> None:
    """T-6: slots are found again; older launchers leave only ``driver_data``."""
    site = make_site({"max-parallel-jobs": 3})
    nodes = site.serve("small", "small")
    site.end()
    (backing_id,) = site.backing()
    if old:
        _change_user_data(zk, backing_id, nodes=None)
    again = make_site({"max-parallel-jobs": 3})
    (third,) = again.serve()
    assert place(third) == (backing_id, 2)
    again.delete(*nodes)
    (fourth,) = again.serve()
    assert place(fourth) == (backing_id, 0)
    assert len(pool.served) == 1


def test_others_do_not_count_as_ours(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """T-6: both ``user_data`` and the lock must say so."""
    site = make_site({"max-parallel-jobs": 3})
    (first,) = site.serve()
    backing = zk.getNode(place(first)[0])
    assert backing is not None
    other = Node("big")
    other.provider, other.state, other.user_data = "backing", states.IN_USE, backing.user_data
    zk.storeNode(other)
    zk.lockNode(other, identifier="somebody else")
    places = [place(node) for node in site.serve("small", "small", "small")]
    assert {backing_id for backing_id, _ in places}.isdisjoint({other.id})


def test_somebody_elses_node_has_no_slot(make_site: MakeSite, zk: MemoryZooKeeper) -> None:
    """The list was changed by hand and names a node of another provider: the slot is free."""
    site = make_site({"max-parallel-jobs": 2})
    site.delete(*site.serve())
    (backing_id,) = site.backing()
    _change_user_data(zk, backing_id, nodes=[backing_id, "nobody"])
    assert {place(node) for node in site.serve("small", "small")} == {(backing_id, 0), (backing_id, 1)}


def test_node_that_nobody_can_read_keeps_its_slot(
    make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that the cache does not show, because its data is broken, may be in use as long as its znode is there."""
    site = make_site()
    (first,) = site.serve()
    get = zk.cache.nodes.get
    monkeypatch.setattr(zk.cache.nodes, "get", lambda node_id: None if node_id == first.id else get(node_id))
    zk.nodes.table.tell(first.key)
    second, third = site.serve("small", "small")
    assert len({place(node) for node in (first, second, third)}) == 3
    zk.deleteRawNode(first.key)
    site.allocator.sweep_soon()
    site.pass_now()
    (fourth,) = site.serve()
    assert place(fourth) == place(first)


def test_two_launchers_never_give_a_slot_twice(make_site: MakeSite, zk: MemoryZooKeeper, pool: BackingPool) -> None:
    """Several launchers share the backing nodes of one provider; every hand-out is seen by all of them."""
    sites = [make_site({"max-parallel-jobs": 4, "grace-time": 0}) for _ in range(3)]
    doubles: list[tuple[str, int]] = []

    def is_ready(node_id: str | None) -> bool:
        node = zk.getNode(node_id or "")
        return node is not None and node.state == states.READY

    def look() -> None:
        first: dict[tuple[str, int], str | None] = {}
        for node in list(zk.nodeIterator()):
            if node.provider == "shared" and node.state == states.READY:
                other = first.setdefault(place(node), node.id)
                # Nodes were read one after the other: only if both are there at the same time it is a mistake.
                if other != node.id and is_ready(node.id) and is_ready(other):
                    doubles.append(place(node))

    def work(site: Site) -> None:
        for _ in range(25):
            site.delete(*site.serve("small", "small"))

    with watching(look, 0.001), ThreadPoolExecutor(3) as threads:
        for future in [threads.submit(work, site) for site in sites]:
            future.result()
    assert not doubles

    def left() -> list[Node]:
        # One that was fulfilled in the moment when its request was taken back is freed by the cleanup worker (C-9).
        return [n for n in zk.nodeIterator() if n.user_data or zk.getNodeRequest(n.allocated_to or "") is not None]

    wait_for("every backing node is released", lambda: not left())
    wait_for("every backing request is deleted", lambda: not sites[0].requests())


def test_somebody_else_was_faster(make_site: MakeSite, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that somebody else was faster than is decided anew, with what the other one wrote."""
    site = make_site({"max-parallel-jobs": 3})
    site.serve()
    (backing_id,) = site.backing()
    other = Node("small")
    other.provider, other.state = "shared", states.BUILDING
    zk.storeNode(other)
    save = zk.nodes.save
    told: list[str | None] = []

    def outrun(node: Node) -> None:
        if node.id == backing_id and not told:
            told.append(node.id)
            nodes = json.loads(zk.getNode(backing_id).user_data)["nodes"]  # type: ignore[union-attr]
            monkeypatch.setattr(zk.nodes, "save", save)
            _change_user_data(zk, backing_id, nodes=[nodes[0], other.id, None])
        save(node)

    monkeypatch.setattr(zk.nodes, "save", outrun)
    (node,) = site.serve()
    assert told
    assert place(node) == (backing_id, 2)


def _change_user_data(zk: MemoryZooKeeper, backing_id: str, **changes: object) -> None:
    """As another launcher would; None removes a key."""
    while True:
        node = zk.getNode(backing_id)
        assert node is not None
        data = {**json.loads(node.user_data), **changes}
        node.user_data = json.dumps({key: value for key, value in data.items() if value is not None})
        try:
            zk.storeNode(node)
        except ZKConflict:
            continue
        return
