# SPDX-License-Identifier: Apache-2.0
"""Three ZooKeeper servers: a client goes on while most of them live, and waits while they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodepool.cmd import tls
from nodepool.exceptions import ZKException
from nodepool.model.node import Node
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.certificates import Certificates
from tests.support.pool_znodes import PoolZnodes
from tests.support.wait import present, wait_for
from tests.support.zookeeper import ZooKeeperServer
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
    made = []

    def connect(hosts: str, timeout: float) -> ZooKeeperClient:
        client = ZooKeeperClient(hosts, timeout=timeout, **ensemble.certificates.options())
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

    leader = present(ensemble.leader())
    ensemble.servers[leader].kill()
    zk.storeNode(node)
    wait_for("two of them are enough", ensemble.serves)
    assert client.session_epoch == 0
    wait_for("the others have a leader", lambda: ensemble.leader() not in (None, leader))

    ensemble.servers[present(ensemble.leader())].kill()
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
    leader = present(ensemble.leader())
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


# -- the certificates of ``nodepool-tls``: at first, renewed, and of a new authority


def files(place: Path, client: str = "nodepool") -> Certificates:
    clients = place / "clients"
    server = place / "servers" / "localhost.pem"
    return Certificates(place / "ca.pem", clients / f"{client}.pem", clients / f"{client}.key", server)


def make(place: Path, *commands: list[str]) -> None:
    for command in commands:
        assert tls.main(["-d", str(place), *command]) == 0


def connects(server: ZooKeeperServer, made: Certificates) -> bool:
    client = ZooKeeperClient(server.tls_hosts(), **made.options())
    try:
        client.connect(20)
    except ZKException:
        return False
    finally:
        client.disconnect()
    return True


def test_server_and_clients(tmp_path: Path) -> None:
    """Each of them is trusted; one of another authority is not."""
    place = tmp_path / "zk-tls"
    make(place, ["init"], ["server", "localhost", "127.0.0.1"], ["client", "nodepool"], ["client", "zuul"])
    server = ZooKeeperServer(tmp_path / "zookeeper", certificates=files(place))
    server.start()
    try:
        assert connects(server, files(place))
        assert connects(server, files(place, "zuul"))
        make(place, ["renew", "--all"])
        assert connects(server, files(place))
        old = tmp_path / "old"
        old.mkdir()
        for name in ("nodepool.pem", "nodepool.key"):
            (old / name).write_bytes((place / "clients" / name).read_bytes())
        before = Certificates(place / "ca.pem", old / "nodepool.pem", old / "nodepool.key", place)
        second = tmp_path / "second"
        make(second, ["init", "--name", "second"])
        (place / "ca.pem").write_bytes((second / "ca.pem").read_bytes() + (place / "ca.pem").read_bytes())
        (second / "ca.key").rename(place / "ca.key")
        make(place, ["renew"])
        # The server trusts both after its restart: the old client goes on, and the new one begins.
        server.stop()
        server.start()
        assert connects(server, files(place))
        assert connects(server, before)
    finally:
        server.stop()
