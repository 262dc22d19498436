# SPDX-License-Identifier: Apache-2.0
"""The facade that drivers written for 11.0.0 get: its methods beside those of ours."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
from kazoo.exceptions import NodeExistsError, SessionExpiredError

from nodepool.compat.modules import KnownImage, ReleasedZooKeeper, facade_for_extra_driver
from nodepool.exceptions import ZKConflict, ZKException, ZKLockException
from nodepool.model.image import ImageBuild, ImageUpload
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.pool_znodes import PoolZnodes
from tests.support.released_facade import released_facade
from tests.support.session_loss import expire_session
from tests.support.wait import present, wait_for
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


def read(zk: ReleasedZooKeeper, node: Node) -> Node:
    return present(zk.getNode(node.key))


# -- nodes and requests


def test_cached_and_read(zk: ReleasedZooKeeper, znodes: PoolZnodes) -> None:
    """``cached``, ``only_cached`` and ``cached_ids``; what is given is the caller's own."""
    node = add(zk)
    for found in (
        *(zk.getNode(node.key), zk.getNode(node.key, cached=True)),
        *(*zk.nodeIterator(), *zk.nodeIterator(cached=False, cached_ids=True)),
    ):
        assert found is not None
        assert (found.id, found.comment) == (node.id, None)
        found.comment = "mine"
    for options in ({"cached": True}, {"only_cached": True}):
        assert zk.getNode("0000000099", **options) is None
    request_id = znodes.submit(["small"])
    wait_for("the cache has it", lambda: [one.id for one in zk.nodeRequestIterator()] == [request_id])
    for request in (zk.getNodeRequest(request_id, cached=True), *zk.nodeRequestIterator(cached=False, cached_ids=True)):
        assert request is not None
        assert (request.id, request.requestor_data == "mine") == (request_id, False)
        request.requestor_data = "mine"


def test_nodes_of_a_provider(zk: ReleasedZooKeeper) -> None:
    free, taken, held, other = add(zk), add(zk), add(zk), add(zk, pool="other")
    add(zk, provider="elsewhere", state="in-use")
    assert [node.id for node in zk.getProviderNodes("cloud")] == [free.id, taken.id, held.id, other.id]
    assert zk.countPoolNodes("cloud", "main") == 3
    zk.removeProviderNodes("cloud", [other])
    assert zk.getNode(other.key) is None
    taken.allocated_to = "500-0000000000"
    zk.storeNode(taken)
    zk.lockNode(held)
    wait_for("the cache knows", lambda: [n.id for n in zk.getReadyNodesOfTypes(["small"])["small"]] == [free.id])
    assert zk.getReadyNodesOfTypes(["large"]) == {}
    assert zk.deleteOldestUnusedNode("cloud", "main")
    assert read(zk, free).state == "used"
    assert zk.getNodeLockContenders(free) == []
    zk.lockNode(free, ephemeral=False, identifier="NodePool:metastatic:cloud")
    for asked in (free, free.key):
        # The released metastatic driver asks with the node for the hosts that an ended launcher held.
        assert zk.getNodeLockContenders(asked) == ["NodePool:metastatic:cloud"]


def test_requests(zk: ReleasedZooKeeper, znodes: PoolZnodes) -> None:
    request = NodeRequest()
    request.node_types = ["small"]
    zk.storeNodeRequest(request)
    assert request.key.startswith("100-"), "the default of 11.0.0"
    assert zk.getNodeRequestLockStats(request.key) is None
    zk.lockNodeRequest(request)
    (found,) = zk.nodeRequestLockStatsIterator()
    assert found == zk.getNodeRequestLockStats(request.key)
    assert (found.lock_id, found.stat.mtime > 0) == (request.id, True)
    znodes.change_request(request.key, relative_priority=7)
    zk.updateNodeRequest(request)
    assert (request.relative_priority, request.lock is not None) == (7, True)
    assert zk.getNodeRequestLockIDs() == [request.id]
    zk.deleteNodeRequestLock(request.key)
    assert zk.getNodeRequestLockIDs() == []
    zk.deleteNodeRequest(request)
    with pytest.raises(ZKConflict):
        zk.updateNodeRequest(request)


def test_watch(zk: ReleasedZooKeeper) -> None:
    """Called at once and after changes, until it returns False or the node is gone."""
    calls: list[tuple[bool, bool, str | None]] = []
    once: list[bool] = []
    node, single = add(zk), add(zk)
    zk.watchNode(node, lambda same, deleted: calls.append((same is node, deleted, same.comment)))
    zk.watchNode(single, lambda _, deleted: bool(once.append(deleted)))  # type: ignore[func-returns-value]
    zk.deleteNode(single)
    assert calls == [(True, False, None)]
    mine = read(zk, node)
    mine.comment = "held"
    zk.storeNode(mine)
    wait_for("the change", lambda: (True, False, "held") in calls)
    zk.deleteNode(mine)
    wait_for("the end", lambda: calls[-1] == (True, True, "held"))
    assert once == [False]


def test_node_event(zk: ReleasedZooKeeper) -> None:
    """It is set by changes; the last one that was given counts."""
    events = [threading.Event(), threading.Event()]
    for event in events:
        zk.setNodeStatsEvent(event)
        events[0].clear()
        add(zk)
        wait_for("the event", event.is_set)
    assert not events[0].is_set()
    zk.setNodeStatsEvent(None)
    events[1].clear()
    add(zk)
    assert not events[1].is_set()


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
    theirs = read(others, conflict)
    others.lockNode(theirs)
    theirs.comment = "of another launcher now"
    others.storeNode(theirs)
    if noticed:
        wait_for("the new session", lambda: zk.client.session_epoch > epoch and zk.connected)
    for one in (conflict, node):
        with pytest.raises(SessionExpiredError):
            zk.storeNode(one)
    zk.storeNode(mine)
    assert read(others, conflict).comment == "of another launcher now"


# -- the connection


def test_connection(
    zk: ReleasedZooKeeper, client: ZooKeeperClient, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture
) -> None:
    """Its state, its log, transactions of Kazoo, and reference/metrics 5, the names below ``zk``."""
    assert (zk.connected, zk.suspended, zk.lost, zk.kazoo_client is client.kazoo) == (True, False, False, True)
    assert zk.getStatsElection("me").is_leader()
    for _ in range(3):
        zk.logConnectionRetryEvent()
    assert caplog.messages.count("Retrying zookeeper connection") == 1
    transaction = zk.client.client.transaction()
    transaction.create("/one")
    assert zk.client.commitTransaction(transaction) == ["/one"]
    transaction = zk.client.client.transaction()
    for path in ("/one", "/two"):
        transaction.create(path)
    with pytest.raises(NodeExistsError):
        zk.client.commitTransaction(transaction)
    assert znodes.kazoo.exists("/two") is None
    statsd = MagicMock()
    zk.reportStats(statsd, "nodepool.launcher.here")
    packet = statsd.pipeline.return_value.__enter__.return_value
    queues = [f"{kind}_cache.{queue}_queue" for kind in ("node", "request", "image") for queue in ("event", "playback")]
    names = [f"nodepool.launcher.here.zk.{name}" for name in ("client.connection_queue", *queues)]
    assert [call.args for call in packet.gauge.call_args_list] == [(name, 0) for name in names]
    assert statsd.pipeline.call_count == 1


@pytest.mark.parametrize("options", [{}, {"enable_cache": True}, {"enable_cache": False}])
def test_facade_of_a_drivers_own(client: ZooKeeperClient, options: dict[str, bool]) -> None:
    """`ZooKeeper` with the arguments of 11.0.0, from where such drivers import it."""
    made: Any = ZooKeeper(client, **options)  # type: ignore[arg-type]
    assert isinstance(made, ReleasedZooKeeper)
    assert (made.cache is not None) is options.get("enable_cache", True)
    assert made.getImageNames() == []
    positional: Any = ZooKeeper(client, False)  # type: ignore[arg-type]
    assert (type(positional), positional.cache) == (ReleasedZooKeeper, None)
    assert type(ZooKeeper(client, None)) is ZooKeeper


def test_connection_of_its_own(
    make_client: Callable[..., ZooKeeperClient], zookeeper: ZooKeeperServer, chroot: str
) -> None:
    """The arguments of 11.0.0, in their order, and the connection that it has."""
    client = make_client(connect=False)
    client.connect()
    zk, other = ReleasedZooKeeper(client), ReleasedZooKeeper(make_client(), enable_cache=False)
    other.storeNode(Node("small"))
    wait_for("the cache has it", lambda: len(list(zk.nodeIterator())) == 1)
    assert (other.cache, len(list(other.nodeIterator()))) == (None, 1)
    for reset in (zk.resetHosts, client.resetHosts):
        reset(zookeeper.tls_hosts(chroot))
    with pytest.raises(ZKException):
        zk.resetHosts(f"{zookeeper.tls_hosts('')}/elsewhere")
    zk.disconnect()
    assert zk.lost
    with pytest.raises(ZKException):
        zk.getNodes()


# -- images


def ready_build(zk: ReleasedZooKeeper) -> str:
    build = ImageBuild("debian")
    build.state, build.formats = "ready", ["raw"]
    return zk.storeBuild("debian", build)


def test_builds_and_uploads(zk: ReleasedZooKeeper) -> None:
    """Written as 11.0.0 does (reference/zookeeper 6)."""
    build_id = ready_build(zk)
    assert (zk.getImageNames(), zk.getBuildIds("debian")) == (["debian"], [build_id])
    assert present(zk.getBuild("debian", build_id)).formats == ["raw"]
    for builds in (zk.getBuilds("debian", ["ready"]), zk.getMostRecentBuilds(1, "debian", "ready")):
        assert [one.id for one in builds] == [build_id]
    assert zk.getBuilds("debian", ["failed"]) == []

    place = ("debian", build_id, "cloud")
    upload = ImageUpload(*place)
    upload.state = "uploading"
    number = zk.storeImageUpload(*place, upload)
    assert len(number) == 10
    upload.state, upload.external_id = "ready", "image-1"
    assert zk.storeImageUpload(*place, upload, number) == number
    stored = present(zk.getImageUpload(*place, number))
    assert (stored.state, stored.external_id) == ("ready", "image-1")
    assert (zk.getBuildProviders("debian", build_id), zk.getImageUploadNumbers(*place)) == (["cloud"], [number])
    for uploads in (
        zk.getUploads(*place, ["ready"]),
        zk.getMostRecentBuildImageUploads(2, *place),
        zk.getProviderUploads("cloud")["debian"][build_id],
    ):
        assert [one.id for one in uploads] == [number]
    for state, wanted in (("ready", number), ("failed", None)):
        newest = zk.getMostRecentImageUpload("debian", "cloud", state)
        assert (newest and newest.id) == wanted
    assert zk.getProviderBuilds("cloud") == {"debian": [build_id]}
    assert not zk.deleteBuild("debian", build_id), "it has an upload"
    for _ in range(2):
        zk.deleteUpload(*place, number)
    zk.removeProviderBuilds("cloud", {"debian": [build_id]})
    assert zk.getBuildProviders("debian", build_id) == []
    assert zk.deleteBuild("debian", build_id)
    assert zk.getBuild("debian", build_id) is None
    with pytest.raises(ZKException, match="does not exist any more"):
        zk.storeImageUpload(*place, upload)


def test_writes_over_what_a_driver_did_not_read(zk: ReleasedZooKeeper) -> None:
    build = ImageBuild("debian")
    build_id = zk.storeBuild("debian", build)
    number = zk.storeImageUpload("debian", build_id, "cloud", ImageUpload("debian", build_id, "cloud"))
    other, upload = ImageBuild("debian"), ImageUpload("debian", build_id, "cloud")
    other.state = upload.state = "deleting"
    zk.storeBuild("debian", other, build_id)
    zk.storeImageUpload("debian", build_id, "cloud", upload, number)
    assert [one.state for one in zk.getBuilds("debian")] == ["deleting"]
    assert [one.state for one in zk.getUploads("debian", build_id, "cloud")] == ["deleting"]
    with pytest.raises(ZKConflict, match="to write over"):
        zk.storeBuild("debian", ImageBuild("debian"), "gone")
    with pytest.raises(ZKConflict):
        zk.storeBuild("debian", build, build_id)


def test_cached_images(zk: ReleasedZooKeeper, client: ZooKeeperClient) -> None:
    """From the cache, or read without one; what they return is the caller's own."""
    plain = ZooKeeper(client, enable_cache=False)  # type: ignore[call-arg]
    assert isinstance(plain, ReleasedZooKeeper)
    build_id = ready_build(zk)
    upload = ImageUpload("debian", build_id, "cloud")
    upload.state = "ready"
    number = zk.storeImageUpload("debian", build_id, "cloud", upload)
    wait_for("the cache has it", zk.getCachedImageUploads)
    for facade in (zk, plain):
        assert [(one.image_name, one.paused) for one in facade.getCachedImages()] == [("debian", False)]
        assert [one.id for one in facade.getCachedBuilds()] == [build_id]
        (found,) = facade.getCachedImageUploads()
        newest = present(facade.getMostRecentImageUpload("debian", "cloud", cached=True))
        assert found.id == newest.id == number
        found.state = newest.state = "failed"
        assert [one.state for one in facade.getCachedImageUploads()] == ["ready"]


def test_requests_for_builds_and_pauses(zk: ReleasedZooKeeper) -> None:
    assert (zk.hasBuildRequest("debian"), zk.getBuildRequest("debian")) == (False, None)
    zk.submitBuildRequest("debian")
    request = present(zk.getBuildRequest("debian"))
    assert (zk.hasBuildRequest("debian"), request.image_name, request.pending) == (True, "debian", True)
    zk.storeBuild("debian", ImageBuild("debian"))
    with zk.imageBuildLock("debian"):
        assert not present(zk.getBuildRequest("debian")).pending, "it is being built"
    for _ in range(2):
        zk.removeBuildRequest("debian")
    assert not zk.hasBuildRequest("debian")
    for paused in (True, False):
        zk.setImagePaused("debian", paused)
        assert zk.getImagePaused("debian") is paused


def test_locks_of_images(zk: ReleasedZooKeeper, other: ZooKeeperClient) -> None:
    """Each holds others off."""
    others = facade_for_extra_driver(ZooKeeper(other, None))
    assert isinstance(others, ReleasedZooKeeper)
    build_id = ready_build(zk)
    upload = ImageUpload("debian", build_id, "cloud")
    zk.storeImageUpload("debian", build_id, "cloud", upload)
    for name, arguments in (
        *(("imageBuildLock", ("debian",)), ("imageBuildIdLock", ("debian", build_id))),
        *(("imageUploadLock", ("debian", build_id, "cloud")), ("imageUploadNumberLock", (upload,))),
    ):
        lock = getattr(others, name)
        with getattr(zk, name)(*arguments), pytest.raises(ZKLockException), lock(*arguments, blocking=False):
            pass
        with lock(*arguments, blocking=False):
            pass


def test_backup_of_images(zk: ReleasedZooKeeper) -> None:
    """reference/zookeeper 6.4: all comes back, and what is no image is refused."""
    build_id = ready_build(zk)
    zk.setImagePaused("debian", True)
    zk.submitBuildRequest("fedora")
    known = [KnownImage("debian", True), KnownImage("fedora", False)]
    wait_for("cached", lambda: sorted(zk.getCachedImages(), key=lambda image: image.image_name) == known)
    exported = zk.exportImageData()
    assert sorted(exported) == [f"/nodepool/images/debian/{name}" for name in (f"builds/{build_id}", "pause")]
    zk.kazoo_client.delete("/nodepool/images", recursive=True)
    with pytest.raises(ZKException, match="/nodepool/nodes/1"):
        zk.importImageData({**exported, "/nodepool/nodes/1": "{}"})
    assert zk.getImageNames() == []
    zk.importImageData(exported)
    assert zk.exportImageData() == exported
