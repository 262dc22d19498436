# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of nodepool.zk: clients over TLS in a chroot of their own, a connection that fails on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodes import NodeStore
from nodepool.zk.request_store import RequestStore
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.tcp_proxy import TcpProxy
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture
def make_client(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[Callable[..., ZooKeeperClient]]:
    """Makes clients over TLS; by default they are connected and live in the test's chroot."""
    made: list[ZooKeeperClient] = []

    def make(hosts: str | None = None, *, connect: bool = True, timeout: float = 10.0) -> ZooKeeperClient:
        certificates = zookeeper.certificates
        client = ZooKeeperClient(
            hosts or zookeeper.tls_hosts(chroot),
            timeout=timeout,
            tls_cert=str(certificates.client_cert),
            tls_key=str(certificates.client_key),
            tls_ca=str(certificates.ca),
        )
        made.append(client)
        if connect:
            client.connect(timeout=30)
        return client

    yield make
    for client in made:
        client.disconnect()


@pytest.fixture
def client(make_client: Callable[..., ZooKeeperClient]) -> ZooKeeperClient:
    return make_client()


@pytest.fixture
def other(make_client: Callable[..., ZooKeeperClient]) -> ZooKeeperClient:
    """A second launcher."""
    return make_client()


@pytest.fixture
def cache(client: ZooKeeperClient) -> NodepoolCache:
    """The cache of `client`, complete."""
    made = NodepoolCache(client)
    assert made.wait_ready(30)
    return made


@pytest.fixture
def zk(client: ZooKeeperClient, cache: NodepoolCache) -> ZooKeeper:
    """All stores of `client`, with its cache."""
    return ZooKeeper(client, cache)


@pytest.fixture
def proxy(zookeeper: ZooKeeperServer) -> Iterator[TcpProxy]:
    """A way to the TLS port that fails on demand."""
    made = TcpProxy(zookeeper.tls_port)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def shaky(make_client: Callable[..., ZooKeeperClient], proxy: TcpProxy, chroot: str) -> ZooKeeperClient:
    """A client that is connected through `proxy`; its session lives for a minute."""
    return make_client(f"127.0.0.1:{proxy.port}{chroot}", timeout=60.0)


@pytest.fixture
def competitor(znodes: PoolZnodes) -> Iterator[Competitor]:
    """Takes and waits for locks as Zuul does, in a session of its own."""
    made = Competitor(znodes.kazoo)
    yield made
    made.stop()


@pytest.fixture(params=["with cache", "without cache"])
def nodes(request: pytest.FixtureRequest, client: ZooKeeperClient) -> NodeStore:
    """As a launcher and as the command line use it. It is 1234.5 s after the epoch."""
    cache = None
    if request.param == "with cache":
        cache = NodepoolCache(client)
        assert cache.wait_ready(30)
    return NodeStore(client, cache, clock=lambda: 1234.5)


@pytest.fixture
def requests(client: ZooKeeperClient, nodes: NodeStore) -> RequestStore:
    """Beside `nodes`."""
    return RequestStore(client, nodes._cache, nodes, clock=lambda: 1234.5)


@pytest.fixture
def submitted(requests: RequestStore, znodes: PoolZnodes) -> NodeRequest:
    """A request of Zuul for two nodes, as we read it."""
    found = requests.get(znodes.submit(["small", "small"]))
    assert found is not None
    return found


@pytest.fixture
def ready(nodes: NodeStore) -> list[Node]:
    """Two free ready nodes."""
    made = []
    for _ in range(2):
        node = Node("small")
        node.state = "ready"
        nodes.create(node)
        made.append(node)
    return made
