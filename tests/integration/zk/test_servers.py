# SPDX-License-Identifier: Apache-2.0
"""Three ZooKeeper servers: a client goes on while most of them live, and waits while they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from nodepool.model.node import Node
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import wait_for
from tests.support.zookeeper_ensemble import ZooKeeperEnsemble


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    found = ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble"), links=True)
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def connect(ensemble: ZooKeeperEnsemble) -> Iterator[Callable[[str, float], ZooKeeperClient]]:
    """Connects to these servers, with a session that lives for so many seconds."""
    # All serve, whatever the test before has done to them.
    ensemble.start()
    files = ensemble.certificates
    made = []

    def connect(hosts: str, timeout: float) -> ZooKeeperClient:
        client = ZooKeeperClient(
            hosts,
            timeout=timeout,
            tls_cert=str(files.client_cert),
            tls_key=str(files.client_key),
            tls_ca=str(files.ca),
        )
        made.append(client)
        client.connect(60)
        return client

    yield connect
    for client in made:
        client.disconnect()


def test_leader_and_quorum_lost(ensemble: ZooKeeperEnsemble, connect: Callable[[str, float], ZooKeeperClient]) -> None:
    """F-3: the session, its locks and what the cache knows survive the leader; without a quorum calls wait."""
    client = connect(ensemble.tls_hosts(), 60.0)
    cache = NodepoolCache(client)
    assert cache.wait_ready(60)
    zk = ZooKeeper(client, cache)
    node = Node("small")
    zk.storeNode(node)
    node.state = "building"
    zk.nodes.lock_and_save(node)

    leader = ensemble.leader()
    assert leader is not None
    ensemble.servers[leader].kill()
    zk.storeNode(node)
    wait_for("two of them are enough", ensemble.serves)
    assert client.session_epoch == 0
    wait_for("the others have a leader", lambda: ensemble.leader() not in (None, leader))

    second = ensemble.leader()
    assert second is not None
    ensemble.servers[second].kill()
    wait_for("the one that is left serves nobody", lambda: not ensemble.modes() and not client.connected)
    assert not ensemble.serves()
    ensemble.start()
    zk.deleteNode(node)
    assert client.session_epoch == 0
    wait_for("the cache knows", lambda: cache.ready and cache.nodes.get(node.key) is None)


def test_server_that_the_leader_has_lost(
    ensemble: ZooKeeperEnsemble, connect: Callable[[str, float], ZooKeeperClient]
) -> None:
    """A server answers pings after the leader has ended the session: they prove nothing."""
    leader = ensemble.leader()
    assert leader is not None
    follower = (leader + 1) % len(ensemble.servers)
    client = connect(ensemble.servers[follower].tls_hosts(), 1.5)
    client.kazoo.create("/alive", ephemeral=True)
    others = PoolZnodes(ensemble.servers[leader].plain_hosts())
    others.start()
    try:
        wait_for("the session is certain", lambda: client.session_is_certain(client.session_epoch))
        ensemble.links[follower, leader].silence()
        epoch = client.session_epoch
        wait_for("the leader has ended the session", lambda: not others.kazoo.exists("/alive"))
        assert not client.session_is_certain(epoch)
    finally:
        others.stop()
        ensemble.links[follower, leader].resume()
