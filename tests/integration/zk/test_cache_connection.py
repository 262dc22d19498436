# SPDX-License-Identifier: Apache-2.0
"""nodepool.zk.cache: after a lost connection or session it is as ZooKeeper is."""

from __future__ import annotations

import pytest

from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import READY_NODE, PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_for
from tests.support.zk_cache import caught_up, comment_of, stored
from tests.support.zookeeper import ZooKeeperServer


def test_changes_without_a_connection(
    shaky: ZooKeeperClient, proxy: TcpProxy, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    """After it is back the cache is as ZooKeeper is: new, changed and deleted records, locks too."""
    kept, gone, locked, unlocked = (znodes.create_node(READY_NODE) for _ in range(4))
    bad = znodes.create_node(b"garbage")
    znodes.kazoo.create(f"{paths.node_lock(unlocked)}/x__lock__0000000000", b"", makepath=True)
    gone_request = znodes.submit(["small"])
    cache = NodepoolCache(shaky)
    assert cache.wait_ready(30)
    told: list[str] = []
    cache.nodes.add_listener(told.append)
    assert cache.nodes.is_locked(unlocked)
    proxy.take_down()
    wait_for("the loss is seen", lambda: not cache.ready)
    znodes.kazoo.delete(paths.node(gone))
    znodes.kazoo.delete(paths.node(bad))
    znodes.delete_request(gone_request)
    new = znodes.create_node(READY_NODE)
    new_request = znodes.submit(["small"])
    znodes.change_node(kept, comment="changed")
    znodes.kazoo.create(f"{paths.node_lock(locked)}/x__lock__0000000000", b"", makepath=True)
    znodes.kazoo.delete(f"{paths.node_lock(unlocked)}/x__lock__0000000000")
    proxy.bring_up()
    assert cache.wait_ready(30)
    wait_for("all is ready", lambda: cache.ready)
    assert sorted(cache.nodes.ids()) == sorted([kept, locked, unlocked, new])
    assert cache.requests.ids() == [new_request]
    found = cache.nodes.get(kept)
    assert found is not None
    assert found.comment == "changed"
    assert [cache.nodes.is_locked(i) for i in (kept, locked, unlocked)] == [False, True, False]
    assert [cache.nodes.has_lock_dir(i) for i in (kept, locked, unlocked)] == [False, True, True]
    assert {gone, new, kept, ""} <= set(told)
    znodes.change_node(new, comment="watched")
    wait_for("it is watched again", lambda: "watched" in [node.comment for node in cache.nodes.values()])


def test_lost_session(zk: ZooKeeper, cache: NodepoolCache, zookeeper: ZooKeeperServer, znodes: PoolZnodes) -> None:
    """What hung on the session is gone; persistent records are not."""
    node = stored(zk)
    zk.lockNode(node)
    request = NodeRequest()
    zk.storeNodeRequest(request)
    wait_for("the lock is known", lambda: cache.nodes.is_locked(node.key))
    expire_session(zookeeper.plain_hosts(), zk.client.kazoo.client_id)
    wait_for("the new session", lambda: zk.client.session_epoch == 1 and zk.client.connected and cache.ready)
    assert cache.nodes.ids() == [node.id]
    assert cache.requests.ids() == []
    assert not cache.nodes.is_locked(node.key)
    caught_up(cache, znodes)


def test_connection_lost_while_writing(shaky: ZooKeeperClient, proxy: TcpProxy, znodes: PoolZnodes) -> None:
    """Announced writes whose answers do not come leave nothing behind that would hide later events."""
    cache = NodepoolCache(shaky)
    assert cache.wait_ready(30)
    zk = ZooKeeper(shaky, cache)
    node = stored(zk)
    proxy.mute = True
    node.state = "building"
    tx = zk.nodes.transaction()
    tx.set_record(paths.node(node.key), node, zk.nodes.encode(node))
    reply = tx.send()
    create = zk.nodes.transaction()
    other = Node("large")
    create.create_record(f"{paths.NODES}/", other, zk.nodes.encode(other))
    created = create.send()
    wait_for("both were written", lambda: len(znodes.nodes()) == 2 and znodes.nodes("building"))
    proxy.take_down()
    assert reply.wait(30)
    assert created.wait(30)
    proxy.mute = False
    proxy.bring_up()
    wait_for("the cache is complete", lambda: cache.ready and len(cache.nodes) == 2)
    assert cache.nodes._expected == {}
    assert cache.nodes._creating == 0
    znodes.change_node(node.key, comment="foreign")
    wait_for("events are followed", lambda: comment_of(cache, node) == "foreign")
