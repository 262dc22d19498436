# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.zookeeper: what drivers and the command line see (reference/driver), and calls after the connection."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException, ZKLockException
from nodepool.model.component import PoolComponent
from nodepool.model.states import NODE_STATES, REQUEST_STATES
from nodepool.zk import components, locks, transactions
from nodepool.zk import zookeeper as zk_module
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import Registration
from nodepool.zk.nodes import NodeStore
from nodepool.zk.request_store import RequestStore
from nodepool.zk.transactions import Transaction
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import present, wait_for


@pytest.fixture
def zk(client: ZooKeeperClient, any_cache: NodepoolCache | None) -> ZooKeeper:
    return ZooKeeper(client, any_cache)


def test_names_that_drivers_use() -> None:
    """`from nodepool.zk import zookeeper as zk; zk.READY`"""
    names = {state.upper().replace("-", "_") for state in (*NODE_STATES, *REQUEST_STATES)}
    assert names <= set(vars(zk_module))
    assert zk_module.IN_USE == "in-use"
    assert issubclass(zk_module.ZKConflict, zk_module.ZKException)
    assert zk_module.Node("a").state == zk_module.INIT
    assert zk_module.NodeRequest().state == zk_module.REQUESTED


def test_life_of_a_node(zk: ZooKeeper, znodes: PoolZnodes, competitor: Competitor) -> None:
    node, new = zk_module.Node("small"), zk_module.Node("small")
    zk.storeNode(node)
    zk.lockNode(node, blocking=False)
    znodes.change_node(node.key, comment="seen")
    with pytest.raises(ZKConflict):
        zk.storeNode(node)
    zk.updateNode(node)
    assert (node.comment, node.lock is not None) == ("seen", True)
    node.state = zk_module.READY
    zk.storeNode(node)
    zk.unlockNode(node)
    found = present(zk.getNode(node.key))
    assert (found.state, zk.getNodes()) == ("ready", [node.id])
    wait_for("it is listed", lambda: [one.state for one in zk.nodeIterator()] == ["ready"])
    assert [one.id for one in zk.nodeIterator(cached=False)] == [node.id]
    zk.lockNode(node, ephemeral=False, identifier="NodePool:metastatic:cloud")
    wait_for("it is seen", lambda: zk.isNodeLocked(node))
    assert zk.getNodeLockContenders(node.key) == ["NodePool:metastatic:cloud"]
    with pytest.raises(ZKLockException):
        zk.lockNode(found, blocking=True, timeout=0.05)
    zk.forceUnlockNode(found)
    wait_for("it is free", lambda: not zk.isNodeLocked(node))
    assert competitor.may_take(f"/nodepool/nodes/{node.id}/lock")
    zk.lockNode(found)
    zk.replaceNode(found, new)
    assert zk.getNodes() == [new.id]
    zk.lockNode(new)
    zk.deleteNode(new)
    assert (zk.getNode(new.key), new.lock) == (None, None)
    for delete in (zk.deleteNode, lambda last: zk.deleteRawNode(last.key)):
        last = zk_module.Node("small")
        zk.storeNode(last)
        delete(last)
        assert zk.getNodes() == []


def test_lock_of_an_operator(zk: ZooKeeper, znodes: PoolZnodes) -> None:
    """The node is read under the lock: what changed meanwhile is not overwritten. One that is gone leaves nothing."""
    seen = zk_module.Node("small")
    zk.storeNode(seen)
    znodes.change_node(seen.key, state="used")
    zk_module.take(zk, seen, 1.0, "alice")
    assert (seen.state, zk.getNodeLockContenders(seen.key)) == ("used", ["alice"])
    other = present(zk.getNode(seen.key))
    with pytest.raises(ZKLockException):
        zk_module.take(zk, other, 0.01, "bob")
    for _ in range(2):
        zk_module.give_back(zk, seen)
        assert zk.getNodeLockContenders(seen.key) == []
    znodes.vanish(seen.key)
    with pytest.raises(ZKConflict):
        zk_module.take(zk, other, 1.0, "bob")
    assert zk.getNodes() == []


def test_newest_upload_from_the_cache(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """Known before anybody asks: it takes no round trip. Who listens needs a cache."""
    with pytest.raises(ZKException, match="without a cache"):
        ZooKeeper(client, None).addNodeListener(print)
    build = json.dumps({"state": "ready", "state_time": 5.0}).encode()
    path = "/nodepool/images/debian/builds/b1"
    for each in (path, f"{path}/providers/cloud/images/0000000001"):
        znodes.kazoo.create(each, build, makepath=True)
    cache = NodepoolCache(client)
    zk = ZooKeeper(client, cache)
    assert cache.wait_ready(30)
    client.disconnect()
    found = present(zk.getMostRecentImageUpload("debian", "cloud"))
    assert (found.build_id, found.id) == ("b1", "0000000001")
    assert zk.getMostRecentImageUpload("debian", "other") is None


def test_closed_connection(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """Every call says that the outcome is unknown; none hangs, none leaks Kazoo's errors."""
    nodes = NodeStore(client, None)
    requests, images = RequestStore(client, None, nodes), ZooKeeper(client, None).images
    node = zk_module.Node("small")
    nodes.create(node)
    nodes.lock_and_save(node)
    request = present(requests.get(znodes.submit(["small"])))
    requests.lock_and_save(request)
    lock = locks.acquire(client, "/lock")
    registration, pool = Registration(client, PoolComponent("host", "1")), PoolComponent("host", "1")
    registration.update()
    tx = Transaction(client)
    tx.create("/a")
    client.kazoo.stop()
    calls: list[Callable[[], object]] = [
        *(nodes.ids, lambda: list(nodes.iterate()), lambda: nodes.get(node.key), lambda: nodes.refresh(node)),
        *(lambda: nodes.save(node), lambda: nodes.create(zk_module.Node()), lambda: nodes.save_unlocked(node)),
        *(lambda: nodes.lock_and_save(node), lambda: nodes.lock(node), lambda: nodes.unlock(node)),
        *(lambda: nodes.remove(node), lambda: nodes.remove_raw(node.key), lambda: nodes.remove_empty(node.key)),
        *(lambda: nodes.contenders(node.key), lambda: nodes.force_unlock(node)),
        *(requests.ids, lambda: list(requests.iterate()), lambda: requests.get(request.key), requests.lock_dir_ids),
        *(lambda: requests.create(zk_module.NodeRequest(), "900"), lambda: requests.delete(request)),
        *(lambda: requests.save(request), lambda: requests.save_unlocked(request), lambda: requests.lock(request)),
        *(lambda: requests.lock_and_save(request), lambda: requests.finish(request), lambda: requests.unlock(request)),
        *(lambda: requests.remove_lock_dir("x"), lambda: requests.remove_lock_dir_recursive("x")),
        *(lambda: requests.lock_dir_age("x"), images.image_names, lambda: images.builds("debian")),
        *(lambda: images.most_recent_upload("debian", "c"), lambda: images.erase_provider("debian", "1", "c")),
        *(lambda: locks.release(client, lock), lambda: locks.acquire(client, "/other", blocking=False)),
        *(lambda: registration.update(paused=True), lambda: Registration(client, pool).update()),
        *(lambda: components.read_pools(client), tx.commit, lambda: next(transactions.read_data(client, ["/a"]))),
    ]
    for call in calls:
        with pytest.raises(ZKConnectionError):
            call()
