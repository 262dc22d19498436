# SPDX-License-Identifier: Apache-2.0
"""Three ZooKeeper servers: a client goes on while most of them live, and waits while they do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodepool.model.node import Node
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodepool_cache import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.wait import wait_for
from tests.support.zookeeper_ensemble import ZooKeeperEnsemble


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[ZooKeeperEnsemble]:
    found = ZooKeeperEnsemble(tmp_path / "ensemble")
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def client(ensemble: ZooKeeperEnsemble) -> Iterator[ZooKeeperClient]:
    files = ensemble.certificates
    made = ZooKeeperClient(
        ensemble.tls_hosts(),
        timeout=60.0,
        tls_cert=str(files.client_cert),
        tls_key=str(files.client_key),
        tls_ca=str(files.ca),
    )
    made.connect(60)
    yield made
    made.disconnect()


def test_leader_and_quorum_lost(ensemble: ZooKeeperEnsemble, client: ZooKeeperClient) -> None:
    """F-1, F-2: the session, its locks and what the cache knows survive the leader; without a quorum calls wait."""
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
    assert client.session_epoch == 0
    wait_for("the others have a leader", lambda: ensemble.leader() not in (None, leader))

    second = ensemble.leader()
    assert second is not None
    ensemble.servers[second].kill()
    wait_for("the one that is left serves nobody", lambda: not ensemble.modes() and not client.connected)
    ensemble.start()
    zk.deleteNode(node)
    assert client.session_epoch == 0
    wait_for("the cache knows", lambda: cache.ready and cache.nodes.get(node.id or "") is None)
