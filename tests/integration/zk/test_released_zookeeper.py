# SPDX-License-Identifier: Apache-2.0
"""The facade that drivers written for 11.0.0 get: its methods beside those of ours."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError, SessionExpiredError

from nodepool.compat.released_zookeeper import ReleasedZooKeeper
from nodepool.exceptions import ZKConflict, ZKException
from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import PoolZnodes
from tests.support.released_facade import released_facade
from tests.support.session_loss import expire_session
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture
def zk(client: ZooKeeperClient) -> ReleasedZooKeeper:
    return released_facade(client)


def add(zk: ReleasedZooKeeper, *, state: str = "ready", provider: str = "cloud", pool: str = "main") -> Node:
    node = Node("small")
    node.provider, node.pool, node.state = provider, pool, state
    zk.storeNode(node)
    wait_for("the cache has it", lambda: zk.getNode(node.key, only_cached=True) is not None)
    return node


def test_cached_and_read(zk: ReleasedZooKeeper, znodes: PoolZnodes) -> None:
    """``cached``, ``only_cached`` and ``cached_ids``; what is given is the caller's own."""
    node = add(zk)
    for found in (
        zk.getNode(node.key),
        zk.getNode(node.key, cached=True),
        *zk.nodeIterator(),
        *zk.nodeIterator(cached=False, cached_ids=True),
    ):
        assert found is not None
        assert (found.id, found.comment) == (node.id, None)
        found.comment = "mine"
    assert zk.getNode("0000000099", cached=True) is None
    assert zk.getNode("0000000099", only_cached=True) is None
    request_id = znodes.submit(["small"])
    wait_for("the cache has it", lambda: [one.id for one in zk.nodeRequestIterator()] == [request_id])
    for request in (zk.getNodeRequest(request_id, cached=True), *zk.nodeRequestIterator(cached=False, cached_ids=True)):
        assert request is not None
        assert request.id == request_id
        assert request.requestor_data != "mine"
        request.requestor_data = "mine"


def test_nodes_of_a_provider(zk: ReleasedZooKeeper) -> None:
    mine, other = add(zk), add(zk, pool="other")
    add(zk, provider="elsewhere")
    assert [node.id for node in zk.getProviderNodes("cloud")] == [mine.id, other.id]
    assert zk.countPoolNodes("cloud", "main") == 1
    zk.removeProviderNodes("cloud", [mine, other])
    assert zk.getNode(mine.key) is None


def test_ready_nodes(zk: ReleasedZooKeeper) -> None:
    free, taken, held = add(zk), add(zk), add(zk)
    add(zk, state="in-use")
    taken.allocated_to = "500-0000000000"
    zk.storeNode(taken)
    zk.lockNode(held)
    wait_for("the cache knows", lambda: [n.id for n in zk.getReadyNodesOfTypes(["small"])["small"]] == [free.id])
    assert zk.getReadyNodesOfTypes(["large"]) == {}
    assert zk.deleteOldestUnusedNode("cloud", "main")
    stored = zk.getNode(free.key)
    assert stored is not None
    assert stored.state == "used"


def test_contenders(zk: ReleasedZooKeeper) -> None:
    """The released metastatic driver asks with the node for the hosts that an ended launcher held."""
    node = add(zk)
    assert zk.getNodeLockContenders(node) == []
    zk.lockNode(node, ephemeral=False, identifier="NodePool:metastatic:cloud")
    for asked in (node, node.key):
        assert zk.getNodeLockContenders(asked) == ["NodePool:metastatic:cloud"]


def test_requests(zk: ReleasedZooKeeper, znodes: PoolZnodes) -> None:
    request = NodeRequest()
    request.node_types = ["small"]
    zk.storeNodeRequest(request)
    assert request.key.startswith("100-"), "the default of 11.0.0"
    zk.lockNodeRequest(request)
    path = f"/nodepool/requests/{request.key}"
    data = json.loads(znodes.kazoo.get(path)[0])
    znodes.kazoo.set(path, json.dumps({**data, "relative_priority": 7}).encode())
    zk.updateNodeRequest(request)
    assert (request.relative_priority, request.lock is not None) == (7, True)
    assert zk.getNodeRequestLockIDs() == [request.id]
    zk.deleteNodeRequestLock(request.key)
    assert zk.getNodeRequestLockIDs() == []
    zk.deleteNodeRequest(request)
    with pytest.raises(ZKConflict):
        zk.updateNodeRequest(request)


def test_connection(zk: ReleasedZooKeeper, client: ZooKeeperClient) -> None:
    assert (zk.connected, zk.suspended, zk.lost) == (True, False, False)
    assert zk.kazoo_client is client.kazoo
    assert zk.getStatsElection("me").is_leader()


def test_writes_over_what_a_driver_did_not_read(zk: ReleasedZooKeeper) -> None:
    build = ImageBuild("debian")
    build_id = zk.storeBuild("debian", build)
    number = zk.storeImageUpload("debian", build_id, "cloud", ImageUpload("debian", build_id, "cloud"))
    other, upload = ImageBuild("debian"), ImageUpload("debian", build_id, "cloud")
    other.state = upload.state = "deleting"
    zk.storeBuild("debian", other, build_id)
    zk.storeImageUpload("debian", build_id, "cloud", upload, number)
    found = zk.getBuild("debian", build_id)
    assert found is not None
    assert found.state == "deleting"
    assert [one.state for one in zk.getUploads("debian", build_id, "cloud")] == ["deleting"]
    with pytest.raises(ZKConflict, match="to write over"):
        zk.storeBuild("debian", ImageBuild("debian"), "gone")
    with pytest.raises(ZKConflict):
        zk.storeBuild("debian", build, build_id)


@pytest.mark.parametrize("options", [{}, {"enable_cache": True}, {"enable_cache": False}])
def test_facade_of_a_drivers_own(client: ZooKeeperClient, options: dict[str, bool]) -> None:
    """`ZooKeeper` with the arguments of 11.0.0, from where such drivers import it."""
    made: Any = ZooKeeper(client, **options)  # type: ignore[arg-type]
    assert isinstance(made, ReleasedZooKeeper)
    assert (made.cache is not None) is options.get("enable_cache", True)
    assert made.getImageNames() == []
    positional: Any = ZooKeeper(client, False)  # type: ignore[arg-type]
    assert isinstance(positional, ReleasedZooKeeper)
    assert positional.cache is None
    assert type(ZooKeeper(client, None)) is ZooKeeper


def test_transaction_of_kazoo(zk: ReleasedZooKeeper, znodes: PoolZnodes) -> None:
    """As 11.0.0: results, or the first error."""
    transaction = zk.client.client.transaction()
    transaction.create("/one")
    assert zk.client.commitTransaction(transaction) == ["/one"]
    transaction = zk.client.client.transaction()
    transaction.create("/one")
    transaction.create("/two")
    with pytest.raises(NodeExistsError):
        zk.client.commitTransaction(transaction)
    assert znodes.kazoo.exists("/two") is None


def test_connection_is_tried_again(zk: ReleasedZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        zk.logConnectionRetryEvent()
    assert caplog.messages.count("Retrying zookeeper connection") == 1


def test_watch(zk: ReleasedZooKeeper) -> None:
    """Called at once and after changes, until it returns False or the node is gone."""
    calls: list[tuple[bool, bool, str | None]] = []
    once: list[bool] = []
    node = add(zk)
    zk.watchNode(node, lambda same, deleted: calls.append((same is node, deleted, same.comment)))

    def only_once(_: Node, deleted: bool) -> bool:
        once.append(deleted)
        return False

    single = add(zk)
    zk.watchNode(single, only_once)
    zk.deleteNode(single)
    assert calls == [(True, False, None)]
    mine = zk.getNode(node.key)
    assert mine is not None
    mine.comment = "held"
    zk.storeNode(mine)
    wait_for("the change", lambda: (True, False, "held") in calls)
    zk.deleteNode(mine)
    wait_for("the end", lambda: calls[-1] == (True, True, "held"))
    assert once == [False]


def test_node_event(zk: ReleasedZooKeeper) -> None:
    """It is set by changes; the last one that was given counts."""
    first, second = threading.Event(), threading.Event()
    zk.setNodeStatsEvent(first)
    add(zk)
    wait_for("the event", first.is_set)
    first.clear()
    zk.setNodeStatsEvent(second)
    add(zk)
    wait_for("the event", second.is_set)
    assert not first.is_set()
    zk.setNodeStatsEvent(None)
    second.clear()
    add(zk)
    assert not second.is_set()


class Statsd:
    """As much of the client of the package ``statsd`` as is used."""

    def __init__(self) -> None:
        self.gauges: dict[str, float] = {}
        self.packets = 0

    def pipeline(self) -> Statsd:
        return self

    def __enter__(self) -> Statsd:
        return self

    def __exit__(self, *_: object) -> None:
        self.packets += 1

    def gauge(self, name: str, value: float) -> None:
        self.gauges[name] = value


def test_stats(zk: ReleasedZooKeeper) -> None:
    """reference/metrics 5, the names below ``zk``."""
    statsd = Statsd()
    zk.reportStats(statsd, "nodepool.launcher.here")
    root = "nodepool.launcher.here.zk"
    queues = [f"{kind}_cache.{queue}_queue" for kind in ("node", "request", "image") for queue in ("event", "playback")]
    assert statsd.gauges == {f"{root}.{name}": 0 for name in ("client.connection_queue", *queues)}
    assert statsd.packets == 1


def test_lock_directories(zk: ReleasedZooKeeper, znodes: PoolZnodes) -> None:
    request_id = znodes.submit(["small"])
    request = zk.getNodeRequest(request_id)
    assert request is not None
    assert zk.getNodeRequestLockStats(request_id) is None
    zk.lockNodeRequest(request)
    (found,) = zk.nodeRequestLockStatsIterator()
    assert found == zk.getNodeRequestLockStats(request_id)
    assert found.lock_id == request_id
    assert found.stat.mtime > 0
    zk.unlockNodeRequest(request)


def test_facade_of_its_own(
    make_client: Callable[..., ZooKeeperClient], zookeeper: ZooKeeperServer, chroot: str
) -> None:
    """The arguments of 11.0.0, in their order, and the connection that it has."""
    certificates = zookeeper.certificates
    hosts = zookeeper.tls_hosts(chroot)
    client = ZooKeeperClient(
        hosts, False, 20.0, str(certificates.client_cert), str(certificates.client_key), str(certificates.ca)
    )
    client.connect()
    zk = ReleasedZooKeeper(client)
    other = ReleasedZooKeeper(make_client(), enable_cache=False)
    assert other.cache is None
    other.storeNode(Node("small"))
    wait_for("the cache has it", lambda: len(list(zk.nodeIterator())) == 1)
    assert len(list(other.nodeIterator())) == 1
    zk.resetHosts(hosts)
    client.resetHosts(hosts)
    with pytest.raises(ZKException):
        zk.resetHosts(f"{zookeeper.tls_hosts('')}/elsewhere")
    zk.disconnect()
    assert zk.lost
    with pytest.raises(ZKException):
        zk.getNodes()


@pytest.mark.parametrize("noticed", [False, True])
def test_lost_session(zk: ReleasedZooKeeper, zookeeper: ZooKeeperServer, other: ZooKeeperClient, noticed: bool) -> None:
    """Drivers catch Kazoo's `SessionExpiredError` where they write a node that they have locked."""
    node, mine, conflict = add(zk), add(zk), add(zk)
    for one in (node, conflict):
        zk.lockNode(one)
    zk.lockNode(mine, ephemeral=False, identifier="metastatic")
    epoch = zk.client.session_epoch
    expire_session(zookeeper.plain_hosts(), zk.kazoo_client.client_id)
    others = ReleasedZooKeeper(other, enable_cache=False)
    theirs = others.getNode(conflict.key)
    assert theirs is not None
    others.lockNode(theirs)
    theirs.comment = "somebody else's now"
    others.storeNode(theirs)
    if noticed:
        wait_for("the new session", lambda: zk.client.session_epoch > epoch and zk.connected)
    for one in (conflict, node):
        with pytest.raises(SessionExpiredError):
            zk.storeNode(one)
    zk.storeNode(mine)
    found = others.getNode(conflict.key)
    assert found is not None
    assert found.comment == "somebody else's now"
