# SPDX-License-Identifier: Apache-2.0
"""Metastatic provider: requests for backing nodes, and their claims (rules T-1 to T-4)."""

from __future__ import annotations

import pytest

from nodepool.driver.metastatic import allocator
from nodepool.exceptions import ZKConnectionError
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.testing.memory_zk import MemoryZooKeeper
from tests.support.backing_pool import BackingPool
from tests.support.wait import wait_for
from tests.unit.driver.metastatic.conftest import OWNER, MakeSite, place

# -- requests --


def test_request_fails(make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper) -> None:
    """T-4: the launch fails with it, is tried again, and fails for good."""
    pool.fail = True
    site = make_site()
    site.fail()
    wait_for("the backing requests are deleted", lambda: not site.requests())
    assert not pool.served


def test_request_fails_once(make_site: MakeSite, pool: BackingPool) -> None:
    """T-4: another attempt gets another request."""
    site = make_site()
    pool.fail_next = 1
    site.serve()
    assert len(pool.served) == 1


def test_only_those_who_wait_for_it_fail(make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper) -> None:
    """T-4: who waits for another request waits on."""
    pool.hold = True
    site = make_site({"max-parallel-jobs": 1})
    handlers = [site.begin() for _ in range(2)]
    wait_for("two requests", lambda: len(site.requests()) == 2)
    first, second = site.requests()
    request = zk.getNodeRequest(first)
    assert request is not None
    request.state = states.FAILED
    zk.storeNodeRequest(request)
    wait_for("another request takes its place", lambda: len({*site.requests()} - {first, second}) == 1)
    assert second in site.requests()
    pool.hold = False
    pool.look()
    for handler in handlers:
        site.finish(handler)


def test_request_vanishes(make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper) -> None:
    """T-4: the launch does not wait for launch-timeout."""
    pool.hold = True
    site = make_site()
    handler = site.begin()
    (request_id,) = wait_for("a backing request", site.requests)
    zk.deleteNodeRequest(NodeRequest(id=request_id))
    wait_for("there is another", lambda: site.requests() not in ([], [request_id]))
    pool.hold = False
    pool.look()
    site.finish(handler)


def test_nobody_waits_any_more(make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper) -> None:
    """No backing request is left when the node that it was for was deleted."""
    pool.hold = True
    site = make_site()
    handler = site.begin()
    wait_for("a backing request", site.requests)
    (node,) = [node for node in zk.nodeIterator() if node.provider == "shared"]
    zk.deleteRawNode(node.key)
    node.lock = None
    launch = site.provider.launch_of(node.key)
    assert launch is not None
    launch.abandon()
    wait_for("the backing request is taken back", lambda: not site.requests())
    zk.deleteNodeRequest(handler.request)
    site.worker.drive(handler, 30)


def test_answer_to_the_request_was_lost(
    make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that was made all the same is found and used."""
    create = zk.requests.create
    lost: list[str | None] = []

    def lose(request: NodeRequest, priority: str) -> None:
        create(request, priority)
        if request.requestor == OWNER and not lost:
            lost.append(request.id)
            raise ZKConnectionError("connection lost")

    monkeypatch.setattr(zk.requests, "create", lose)
    site = make_site()
    site.serve()
    assert pool.served == lost


# -- claims --


@pytest.mark.parametrize("applied", [True, False])
def test_answer_to_the_claim_was_lost(
    make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    """T-3: whether the claim was written or not, the node is ours in the end, and used."""
    lock_for_good = zk.nodes.lock_for_good
    lost: list[str | None] = []

    def lose(node: Node, identifier: str) -> str:
        if not lost:
            lost.append(node.id)
            if applied:
                lock_for_good(node, identifier)
            raise ZKConnectionError("connection lost")
        return lock_for_good(node, identifier)

    monkeypatch.setattr(zk.nodes, "lock_for_good", lose)
    site = make_site()
    (node,) = site.serve()
    assert [place(node)[0]] == lost
    assert len(pool.served) == 1
    assert site.backing()[place(node)[0]]["nodes"] == [node.id, None]


def test_locked_for_a_moment(make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper) -> None:
    """T-3: somebody else's lock is waited for."""
    pool.lock_nodes = 1
    site = make_site()
    handler = site.begin()
    (node,) = wait_for("the backing node is there", lambda: pool.locked)
    site.pass_now()
    assert not site.backing()
    zk.unlockNode(node)
    site.finish(handler)
    assert len(pool.served) == 1


def test_locked_for_long(
    make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-3: but not for ever; another backing node is requested."""
    monkeypatch.setattr(allocator, "CLAIM_SECONDS", 0.0)
    pool.lock_nodes = 1
    site = make_site()
    handler = site.begin()
    site.finish(handler)
    assert len(pool.served) == 2
    left = zk.getNode(pool.locked[0].key)
    assert left is not None
    assert left.state == states.READY


def test_backing_node_was_taken(make_site: MakeSite, pool: BackingPool, zk: MemoryZooKeeper) -> None:
    """T-4: a fulfilled request whose node is gone is as good as a failed one."""
    pool.lose_nodes = 1
    site = make_site()
    site.serve()
    assert len(pool.served) == 2
    wait_for("the backing requests are deleted", lambda: not site.requests())
