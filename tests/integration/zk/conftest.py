# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of nodepool.zk: clients over TLS in a chroot of their own, a connection that fails on demand."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodes import NodepoolCache, NodeStore, RequestStore
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import present, wait_for
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture
def make_client(zookeeper: ZooKeeperServer, chroot: str) -> Iterator[Callable[..., ZooKeeperClient]]:
    """Makes clients over TLS; by default they are connected and live in the test's chroot."""
    made: list[ZooKeeperClient] = []

    def make(hosts: str | None = None, *, connect: bool = True, timeout: float = 10.0) -> ZooKeeperClient:
        options = zookeeper.certificates.options()
        client = ZooKeeperClient(hosts or zookeeper.tls_hosts(chroot), timeout=timeout, **options)
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
def lose_session(zookeeper: ZooKeeperServer) -> Callable[[ZooKeeperClient], None]:
    """Ends the session of a client, and waits for its next one."""

    def lose(client: ZooKeeperClient) -> None:
        epoch = client.session_epoch
        expire_session(zookeeper.plain_hosts(), client.kazoo.client_id)
        wait_for("the new session", lambda: client.session_epoch > epoch and client.connected)

    return lose


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
def cut_off(shaky: ZooKeeperClient, proxy: TcpProxy) -> Callable[[], AbstractContextManager[None]]:
    """Inside, `shaky` has no connection, and knows it; afterwards it has one again."""

    @contextlib.contextmanager
    def without_a_connection() -> Iterator[None]:
        proxy.take_down()
        wait_for("the loss is seen", lambda: shaky.suspended)
        yield
        proxy.bring_up()
        assert shaky.wait_connected(30)

    return without_a_connection


@pytest.fixture
def competitor(znodes: PoolZnodes) -> Iterator[Competitor]:
    """Takes and waits for locks as Zuul does, in a session of its own."""
    made = Competitor(znodes.kazoo)
    yield made
    made.stop()


@pytest.fixture(params=["with cache", "without cache"])
def any_cache(request: pytest.FixtureRequest, client: ZooKeeperClient) -> NodepoolCache | None:
    """As a launcher has it, and as the command line."""
    if request.param == "without cache":
        return None
    made = NodepoolCache(client)
    assert made.wait_ready(30)
    return made


@pytest.fixture
def nodes(client: ZooKeeperClient, any_cache: NodepoolCache | None, monkeypatch: pytest.MonkeyPatch) -> NodeStore:
    """It is 1234.5 s after the epoch."""
    monkeypatch.setattr(sys.modules[NodeStore.__module__], "wall_time", lambda: 1234.5)
    return NodeStore(client, any_cache)


@pytest.fixture
def requests(client: ZooKeeperClient, any_cache: NodepoolCache | None, nodes: NodeStore) -> RequestStore:
    """Beside `nodes`."""
    return RequestStore(client, any_cache, nodes)


@pytest.fixture
def submitted(requests: RequestStore, znodes: PoolZnodes) -> NodeRequest:
    """A request of Zuul for two nodes, as we read it."""
    return present(requests.get(znodes.submit(["small", "small"])))


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
