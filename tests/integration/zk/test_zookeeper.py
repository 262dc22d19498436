# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.zookeeper: what drivers and the command line see (reference/driver)."""

from __future__ import annotations

import json

import pytest

from nodepool.exceptions import ZKConflict, ZKException, ZKLockException
from nodepool.model.states import NODE_STATES, REQUEST_STATES
from nodepool.zk import zookeeper as zk_module
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for


@pytest.fixture(params=["with cache", "without cache"])
def zk(request: pytest.FixtureRequest, client: ZooKeeperClient) -> ZooKeeper:
    if request.param == "without cache":
        return ZooKeeper(client, None)
    cache = NodepoolCache(client)
    assert cache.wait_ready(30)
    return ZooKeeper(client, cache)


def test_names_that_drivers_use() -> None:
    """`from nodepool.zk import zookeeper as zk; zk.READY`"""
    names = {state.upper().replace("-", "_") for state in (*NODE_STATES, *REQUEST_STATES)}
    assert names <= set(zk_module.__all__)
    assert zk_module.IN_USE == "in-use"
    assert issubclass(zk_module.ZKConflict, zk_module.ZKException)
    assert zk_module.Node("a").state == zk_module.INIT
    assert zk_module.NodeRequest().state == zk_module.REQUESTED


def test_life_of_a_node(zk: ZooKeeper, znodes: PoolZnodes) -> None:
    node = zk_module.Node("small")
    zk.storeNode(node)
    zk.lockNode(node, blocking=False)
    node.state = zk_module.BUILDING
    zk.storeNode(node)
    znodes.change_node(node.key, comment="seen")
    with pytest.raises(ZKConflict):
        zk.storeNode(node)
    zk.updateNode(node)
    assert (node.comment, node.lock is not None) == ("seen", True)
    node.state = zk_module.READY
    zk.storeNode(node)
    zk.unlockNode(node)
    found = zk.getNode(node.key)
    assert found is not None
    assert found.state == "ready"
    assert zk.getNodes() == [node.id]
    wait_for("it is listed", lambda: [one.state for one in zk.nodeIterator()] == ["ready"])
    assert [one.id for one in zk.nodeIterator(cached=False)] == [node.id]
    zk.deleteNode(node)
    assert zk.getNode(node.key) is None


def test_locks_of_nodes(zk: ZooKeeper, znodes: PoolZnodes, competitor: Competitor) -> None:
    node = zk_module.Node("small")
    zk.storeNode(node)
    zk.lockNode(node, ephemeral=False, identifier="NodePool:metastatic:cloud")
    wait_for("it is seen", lambda: zk.isNodeLocked(node))
    assert zk.getNodeLockContenders(node.key) == ["NodePool:metastatic:cloud"]
    again = zk.getNode(node.key)
    assert again is not None
    with pytest.raises(ZKLockException):
        zk.lockNode(again, blocking=True, timeout=0.05)
    zk.forceUnlockNode(again)
    wait_for("it is free", lambda: not zk.isNodeLocked(node))
    assert competitor.may_take(f"/nodepool/nodes/{node.id}/lock")


def test_replace_and_delete(zk: ZooKeeper, znodes: PoolZnodes) -> None:
    old, new = zk_module.Node("small"), zk_module.Node("small")
    zk.storeNode(old)
    zk.lockNode(old)
    zk.replaceNode(old, new)
    assert zk.getNodes() == [new.id]
    zk.lockNode(new)
    zk.deleteNode(new)
    assert (zk.getNodes(), new.lock) == ([], None)
    last = zk_module.Node("small")
    zk.storeNode(last)
    zk.deleteRawNode(last.key)
    assert zk.getNodes() == []


def test_life_of_a_request(zk: ZooKeeper, znodes: PoolZnodes) -> None:
    request = zk_module.NodeRequest()
    request.node_types = ["small"]
    zk.storeNodeRequest(request, "100")
    assert (request.key).startswith("100-")
    assert zk.getNodeRequests() == [request.id]
    zk.lockNodeRequest(request, blocking=False)
    request.state = zk_module.PENDING
    zk.storeNodeRequest(request)
    zk.unlockNodeRequest(request)
    found = zk.getNodeRequest(request.key)
    assert found is not None
    assert (found.state, found.node_types) == ("pending", ["small"])
    wait_for("it is listed", lambda: [one.state for one in zk.nodeRequestIterator()] == ["pending"])
    assert [one.id for one in zk.nodeRequestIterator(cached=False)] == [request.id]
    zk.deleteNodeRequest(request)
    assert zk.getNodeRequests() == []


def test_default_priority(zk: ZooKeeper) -> None:
    request = zk_module.NodeRequest()
    zk.storeNodeRequest(request)
    assert (request.key).startswith("500-")


def test_listener_needs_a_cache(client: ZooKeeperClient) -> None:
    with pytest.raises(ZKException, match="without a cache"):
        ZooKeeper(client, None).addNodeListener(print)


def test_newest_upload_from_the_cache(client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """Known before anybody asks: it takes no round trip."""
    build = {"state": "ready", "state_time": 5.0}
    path = "/nodepool/images/debian/builds/b1"
    znodes.kazoo.create(path, json.dumps(build).encode(), makepath=True)
    znodes.kazoo.create(f"{path}/providers/cloud/images/0000000001", json.dumps(build).encode(), makepath=True)
    cache = NodepoolCache(client)
    zk = ZooKeeper(client, cache)
    assert cache.wait_ready(30)
    client.disconnect()
    found = zk.getMostRecentImageUpload("debian", "cloud")
    assert found is not None
    assert (found.build_id, found.id) == ("b1", "0000000001")
    assert zk.getMostRecentImageUpload("debian", "other") is None
