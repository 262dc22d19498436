# SPDX-License-Identifier: Apache-2.0
"""What drivers and the command line see (reference/driver), and below it the store of nodes (reference/zookeeper 5)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from kazoo.exceptions import NotEmptyError

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKException, ZKLockException
from nodepool.model.node import Node
from nodepool.model.states import NODE_STATES, REQUEST_STATES
from nodepool.model.status import PoolComponent
from nodepool.zk import components, paths, transactions
from nodepool.zk import zookeeper as zk_module
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import Registration
from nodepool.zk.nodes import NodepoolCache, NodeStore, RequestStore
from nodepool.zk.transactions import Transaction, TransactionFailed, ZkLock
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import READY_NODE, PoolZnodes
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
    requests.send_lock(request)()
    lock = transactions.acquire(client, "/lock")
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
        *(lambda: requests.send_lock(request)(), lambda: requests.finish(request), lambda: requests.unlock(request)),
        *(lambda: requests.remove_lock_dir("x"), lambda: requests.remove_lock_dir_recursive("x")),
        *(lambda: requests.lock_dir_age("x"), images.image_names, lambda: images.builds("debian")),
        *(lambda: images.most_recent_upload("debian", "c"), lambda: images.erase_provider("debian", "1", "c")),
        *(lambda: transactions.release(client, lock), lambda: transactions.acquire(client, "/other", blocking=False)),
        *(lambda: registration.update(paused=True), lambda: Registration(client, pool).update()),
        *(lambda: components.read_pools(client), tx.commit, lambda: next(transactions.read_data(client, ["/a"]))),
    ]
    for call in calls:
        with pytest.raises(ZKConnectionError):
            call()


# -- nodepool.zk.nodes: read, write, lock, remove (reference/zookeeper 5)


@pytest.fixture
def node(nodes: NodeStore) -> Node:
    made = Node("small")
    made.provider = "cloud"
    nodes.create(made)
    return made


def settled(nodes: NodeStore, node: Node, *, locked: bool) -> None:
    """Returns when the store's view of the lock is as it is."""
    wait_for("the lock is seen", lambda: nodes.is_locked(node.key) is locked)


def stored(znodes: PoolZnodes, node: Node) -> tuple[object, object]:
    """State and comment."""
    found = present(znodes.node(node.key))
    return found["state"], found["comment"]


# -- reading and writing


def test_creation(nodes: NodeStore, znodes: PoolZnodes) -> None:
    """The id is the bare sequence; the root is made when it is missing; times are set."""
    for number in range(2):
        node = Node("small")
        nodes.create(node)
        assert (node.id, node.version) == (f"{number:010}", 0)
    assert znodes.children(paths.NODES) == ["0000000000", "0000000001"]
    written = present(znodes.node("0000000000"))
    assert (written["state"], written["state_time"], written["created_time"]) == ("init", 1234.5, 1234.5)


def test_reading(nodes: NodeStore, node: Node, znodes: PoolZnodes, caplog: pytest.LogCaptureFixture) -> None:
    """Bad records and a child named lock are skipped."""
    found = present(nodes.get(node.key))
    assert (found.id, found.provider, found.version, found.mzxid > 0) == (node.id, "cloud", 0, True)
    bad, empty = znodes.create_node(b"garbage"), znodes.create_node(b"")
    znodes.kazoo.create(f"{paths.NODES}/lock", b"")
    assert [nodes.get(node_id) for node_id in ("0000009999", bad)] == [None, None]
    assert f"Ignoring {paths.node(bad)}" in caplog.text
    assert [found.id for found in nodes.iterate()] == [node.id]
    assert sorted(nodes.ids()) == [node.id, bad, empty]
    assert nodes.existing([node.key, bad, "0000000099", "..", "\ud800"]) == {node.id, bad}


def test_nothing_there(client: ZooKeeperClient) -> None:
    """What cannot be a znode is not there either; no question about it ends the connection."""
    nodes = NodeStore(client, None)
    assert (nodes.ids(), list(nodes.iterate()), nodes.contenders("0000000001")) == ([], [], [])
    assert (nodes.is_locked("0000000001"), nodes.locked_ids(["0000000001"]), nodes.existing([])) == (
        False,
        set(),
        set(),
    )
    nodes.remove_raw("0000000001")
    for text in ("", ".", "..", "../nodes", "a/b", "a\0b", "\n", "\ud800", "\ufff0"):
        assert (nodes.get(text), nodes.existing([text])) == (None, set())
    assert (client.session_epoch, client.connected) == (0, True)


def test_refresh(nodes: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """The same object with new fields; a lock that is held stays."""
    nodes.lock(node)
    lock = node.lock
    node.comment = "forgotten"
    znodes.change_node(node.key, provider="other")
    nodes.refresh(node)
    assert (node.provider, node.comment, node.version, node.lock is lock) == ("other", None, 1, True)
    node.state = "building"
    nodes.save(node)
    nodes.remove_raw(node.key)
    with pytest.raises(ZKConflict, match="does not exist any more"):
        nodes.refresh(node)


def test_save_is_fenced(nodes: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """A launcher that was stopped past its session must not overwrite what its successor did."""
    for comment in ("one", "two"):
        node.comment = comment
        nodes.save(node)
    assert (node.version, stored(znodes, node)) == (2, ("init", "two"))
    znodes.change_node(node.key, comment="successor")
    node.state = "building"
    with pytest.raises(ZKConflict):
        nodes.save(node)
    assert stored(znodes, node) == ("init", "successor")
    znodes.kazoo.delete(paths.node(node.key))
    with pytest.raises(ZKConflict):
        nodes.save(node)
    assert znodes.node(node.key) is None


# -- locks


def test_lock_and_unlock(nodes: NodeStore, node: Node, competitor: Competitor) -> None:
    lock_dir = paths.node_lock(node.key)
    nodes.lock(node, blocking=False, identifier="me")
    settled(nodes, node, locked=True)
    assert (nodes.contenders(node.key), nodes.locked_ids([node.key, "0000009999"])) == (["me"], {node.id})
    assert not competitor.may_take(lock_dir)
    nodes.unlock(node)
    settled(nodes, node, locked=False)
    with pytest.raises(ZKLockException):
        nodes.unlock(node)
    held = competitor.hold(lock_dir)
    for options in ({"blocking": False}, {"timeout": 0.05}):
        with pytest.raises(ZKLockException):
            nodes.lock(node, **options)
    assert (node.lock, nodes.contenders(node.key)) == (None, ["zuul"]), "our contender is gone"
    held.release()
    nodes.lock_and_save(node)
    taken = competitor.wait_for_lock(lock_dir)
    assert not taken.is_set()
    nodes.unlock(node)
    assert taken.wait(30)


def test_contenders_in_order_and_force_unlock(nodes: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """The lowest sequence holds the lock, whatever its name."""
    for name, identifier in (("ffff__lock__", b"first"), ("0000__lock__", b"second")):
        znodes.kazoo.create(f"{paths.node_lock(node.key)}/{name}", identifier, sequence=True, makepath=True)
    assert nodes.contenders(node.key) == ["first", "second"]
    nodes.force_unlock(node)
    assert nodes.contenders(node.key) == ["second"]
    for _ in range(2):
        nodes.force_unlock(node)
    settled(nodes, node, locked=False)


# -- fenced writes: lock_and_save, save_unlocked

Write = Callable[[NodeStore, Node], None]
FENCED: list[Write] = [NodeStore.lock_and_save, NodeStore.save_unlocked]


@pytest.mark.parametrize("write", FENCED)
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_write_of_a_free_node(
    nodes: NodeStore,
    node: Node,
    znodes: PoolZnodes,
    competitor: Competitor,
    monkeypatch: pytest.MonkeyPatch,
    write: Write,
    there: bool,
    right: bool,
) -> None:
    """Whether the lock directory exists or not, and also when our view of that is wrong."""
    path = paths.node_lock(node.key)
    if there:
        znodes.kazoo.create(path)
        wait_for("the directory is seen", lambda: nodes.has_lock_dir(node.key))
    if not right:
        monkeypatch.setattr(nodes, "has_lock_dir", lambda node_id: not there)
    node.state = "building"
    write(nodes, node)
    assert (stored(znodes, node)[0], node.version) == ("building", 1)
    assert competitor.may_take(path) is (write is NodeStore.save_unlocked) is (node.lock is None)
    if isinstance(node.lock, ZkLock):
        assert znodes.node_lockers(node.key) == [node.lock.contender.rpartition("/")[2]]
        nodes.unlock(node)
        assert competitor.may_take(path)


@pytest.mark.parametrize("write", FENCED)
def test_obstacle_fails_the_whole_write(
    nodes: NodeStore, node: Node, znodes: PoolZnodes, competitor: Competitor, write: Write
) -> None:
    """A node is never given to two: it is locked, was changed, or is gone, and is not made again."""
    held = competitor.hold(paths.node_lock(node.key))
    node.state = "building"
    with pytest.raises(TransactionFailed) as caught:
        write(nodes, node)
    assert isinstance(caught.value.error, NotEmptyError) or caught.value.lock_dir_mismatch
    assert (*stored(znodes, node), node.version, node.lock) == ("init", None, 0, None)
    assert (len(znodes.node_lockers(node.key)), held.is_acquired) == (1, True)
    settled(nodes, node, locked=True)
    held.release()
    znodes.change_node(node.key, comment="foreign")
    with pytest.raises(ZKConflict):
        write(nodes, node)
    assert (stored(znodes, node), znodes.node_lockers(node.key), node.lock) == (("init", "foreign"), [], None)
    znodes.vanish(node.key)
    with pytest.raises(ZKConflict):
        write(nodes, node)
    assert znodes.children(paths.NODES) == []


def test_lock_under_another_one(nodes: NodeStore, node: Node, client: ZooKeeperClient, znodes: PoolZnodes) -> None:
    """N-3, N-6: nothing is written when that one is lost, whether the lock directory is there or not."""
    under = transactions.acquire(client, paths.request_lock("500-0000000001"))
    transactions.release(client, under)
    node.state = "building"
    for missing in (True, False):
        if not missing:
            znodes.kazoo.create(paths.node_lock(node.key))
            wait_for("the directory is seen", lambda: nodes.has_lock_dir(node.key))
        with pytest.raises(ZKConflict):
            nodes.lock_and_save(node, under=under)
        assert (node.version, node.lock, znodes.node_lockers(node.key)) == (0, None, [])
    nodes.lock_and_save(node, under=transactions.acquire(client, paths.request_lock("500-0000000001")))
    assert node.lock is not None


# -- removal


@pytest.mark.parametrize("replace", [True, False])
def test_remove(nodes: NodeStore, node: Node, znodes: PoolZnodes, replace: bool) -> None:
    """With a replacement in one write: no moment without the one and without the other."""
    new = Node("small") if replace else None
    with pytest.raises(ZKLockException):
        nodes.remove(node, new)
    nodes.lock_and_save(node)
    nodes.remove(node, new)
    assert node.lock is None
    assert znodes.children(paths.NODES) == ([] if new is None else [new.id])
    assert new is None or (new.id, new.version) == ("0000000001", 0)


def test_remove_while_another_process_waits(
    nodes: NodeStore, node: Node, znodes: PoolZnodes, competitor: Competitor
) -> None:
    """reference/zookeeper 3: `deleted` is written first, so that who wins a lock on a dying node can tell.

    A replacement is left for later: a host must not be there twice.
    """
    nodes.lock_and_save(node)
    taken = competitor.wait_for_lock(paths.node_lock(node.key))
    new = Node("small")
    with pytest.raises(ZKConflict):
        nodes.remove(node, new)
    assert (new.id, znodes.children(paths.NODES)) == (None, [node.id])
    nodes.unlock(node)
    assert taken.wait(30)
    competitor.stop()
    nodes.lock(node)
    znodes.kazoo.create(f"{paths.node_lock(node.key)}/ffff__lock__", b"waits", sequence=True)
    nodes.remove(node)
    assert (node.state, node.version, node.lock) == ("deleted", 2, None)
    assert znodes.children(paths.NODES) == []


def test_remove_after_our_lock_is_lost(
    nodes: NodeStore, node: Node, znodes: PoolZnodes, client: ZooKeeperClient, lose_session: Callable[..., None]
) -> None:
    """Fencing: whoever took over owns the node now."""
    nodes.lock_and_save(node)
    lose_session(client)
    for replacement in (None, Node("small")):
        with pytest.raises(ZKConflict):
            nodes.remove(node, replacement)
    assert znodes.children(paths.NODES) == [node.id]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("replace", [True, False])
def test_remove_unlocked(nodes: NodeStore, node: Node, znodes: PoolZnodes, exists: bool, replace: bool) -> None:
    if exists:
        znodes.kazoo.create(paths.node_lock(node.key))
    new = Node("small") if replace else None
    nodes.send_remove_unlocked(node, exists, new).get(30)
    assert znodes.children(paths.NODES) == ([new.id] if new is not None else [])


@pytest.mark.parametrize("exists", [True, False, None])
def test_obstacle_to_remove_unlocked(
    nodes: NodeStore, node: Node, znodes: PoolZnodes, competitor: Competitor, exists: bool | None
) -> None:
    """It is locked, whatever we think of its lock directory; or it was changed."""
    if exists is None:
        znodes.change_node(node.key, state="ready")
    else:
        competitor.hold(paths.node_lock(node.key))
    new = Node("small")
    with pytest.raises(ZKConflict):
        nodes.send_remove_unlocked(node, bool(exists), new).get(30)
    assert (new.id, znodes.children(paths.NODES)) == (None, [node.id])


def test_remove_raw(nodes: NodeStore, node: Node, znodes: PoolZnodes) -> None:
    """CLI erase: whatever its data and locks."""
    znodes.kazoo.create(f"{paths.node_lock(node.key)}/x", b"", makepath=True)
    for _ in range(2):
        nodes.remove_raw(node.key)
        assert znodes.children(paths.NODES) == []


@pytest.mark.parametrize("emptied", [True, False])
@pytest.mark.parametrize("lock_dir", [True, False])
def test_remove_empty(
    nodes: NodeStore, znodes: PoolZnodes, competitor: Competitor, lock_dir: bool, emptied: bool
) -> None:
    """C-8: made without data, or emptied by a hand; what is locked, or was filled meanwhile, stays."""
    empty, locked, filled = (znodes.create_node(READY_NODE if emptied else b"") for _ in range(3))
    for node_id in (empty, locked):
        znodes.kazoo.set(paths.node(node_id), b"")
    if lock_dir:
        znodes.kazoo.create(paths.node_lock(empty))
    competitor.hold(paths.node_lock(locked))
    znodes.kazoo.set(paths.node(filled), READY_NODE)
    assert [nodes.remove_empty(node_id) for node_id in (empty, empty, locked, filled)] == [True, False, False, False]
    assert znodes.children(paths.NODES) == [locked, filled]
