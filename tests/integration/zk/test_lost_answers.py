# SPDX-License-Identifier: Apache-2.0
"""Writes whose answer is lost with the connection: done or not, nothing is done twice and no lock stays behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKLockException
from nodepool.model.component import PoolComponent
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import locks, paths
from nodepool.zk.caches import NodepoolCache
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import Registration
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import POOLS, PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import wait_for
from tests.support.zookeeper import ZooKeeperServer


class Outage:
    """Runs a call over a connection that fails in the middle of it."""

    def __init__(self, client: ZooKeeperClient, proxy: TcpProxy, pool: ThreadPoolExecutor) -> None:
        self.client = client
        self._proxy = proxy
        self._pool = pool

    def lose_answer(self, call: Callable[[], None], written: Callable[[], object]) -> Future[None]:
        """The write arrives, its answer does not. The connection is still down when this returns."""
        self._proxy.mute = True
        future = self._pool.submit(call)
        wait_for("it was written", written)
        self._cut()
        return future

    def lose_question(self, call: Callable[[], None]) -> Future[None]:
        """The write does not even arrive."""
        self._proxy.deaf = True
        sent = self.client.kazoo._call
        seen: list[object] = []

        def noting(request: Any, async_object: Any) -> Any:
            found = sent(request, async_object)
            seen.append(request)
            return found

        self.client.kazoo._call = noting  # type: ignore[method-assign]
        future = self._pool.submit(call)
        wait_for("it was sent", lambda: seen and not self.client.kazoo.queued_calls)
        self._cut()
        return future

    def _cut(self) -> None:
        self._proxy.take_down()
        wait_for("the loss is seen", lambda: self.client.suspended)
        self._proxy.mute = self._proxy.deaf = False

    def end(self) -> None:
        self._proxy.bring_up()
        assert self.client.wait_connected(30)


@pytest.fixture
def outage(shaky: ZooKeeperClient, proxy: TcpProxy) -> Iterator[Outage]:
    with ThreadPoolExecutor(2) as pool:
        yield Outage(shaky, proxy, pool)
        shaky.disconnect()


@pytest.fixture
def zk(shaky: ZooKeeperClient) -> ZooKeeper:
    cache = NodepoolCache(shaky)
    assert cache.wait_ready(30)
    return ZooKeeper(shaky, cache)


@pytest.fixture
def node(zk: ZooKeeper) -> Node:
    made = Node("small")
    zk.storeNode(made)
    return made


@pytest.fixture
def request_(zk: ZooKeeper, znodes: PoolZnodes) -> NodeRequest:
    found = zk.getNodeRequest(znodes.submit(["small"]))
    assert found is not None
    return found


def test_saved_without_an_answer(zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes) -> None:
    """It was written: that is seen by reading, and nothing is written again."""
    node.state = "building"
    saving = outage.lose_answer(lambda: zk.storeNode(node), lambda: znodes.nodes("building"))
    outage.end()
    saving.result(30)
    assert node.version == 1
    assert znodes.kazoo.exists(paths.node(node.key)).version == 1


def test_not_saved(zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes) -> None:
    """It was not: it is written with the next connection."""
    node.state = "building"
    saving = outage.lose_question(lambda: zk.storeNode(node))
    assert znodes.nodes("building") == {}
    outage.end()
    saving.result(30)
    assert node.version == 1
    assert znodes.nodes("building")


@pytest.mark.parametrize("change", ["changed", "gone"])
def test_changed_by_somebody_else_meanwhile(
    zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes, change: str
) -> None:
    node.state = "building"
    saving = outage.lose_answer(lambda: zk.storeNode(node), lambda: znodes.nodes("building"))
    if change == "gone":
        znodes.kazoo.delete(paths.node(node.key))
    else:
        znodes.change_node(node.key, comment="foreign")
    outage.end()
    with pytest.raises(ZKConflict):
        saving.result(30)


@pytest.mark.parametrize("arrives", [True, False])
def test_node_lock_without_an_answer(
    zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes, arrives: bool
) -> None:
    """N-3: it is ours, whether it was taken before the connection broke or is taken after that."""
    session = zk.client.kazoo.client_id
    node.state = "building"
    if arrives:
        locking = outage.lose_answer(lambda: zk.nodes.lock_and_save(node), lambda: znodes.node_lockers(node.key))
    else:
        locking = outage.lose_question(lambda: zk.nodes.lock_and_save(node))
    # One who waits behind us, or who will not let us take it any more.
    foreign = znodes.kazoo.create(f"{paths.node_lock(node.key)}/ffff__lock__", b"", sequence=True) if arrives else None
    outage.end()
    locking.result(30)
    assert zk.nodes.surely_locked(node)
    assert (znodes.nodes("building")[node.key]["state"], node.version) == ("building", 1)
    assert len(znodes.node_lockers(node.key)) == (1 if foreign is None else 2)
    zk.unlockNode(node)
    assert len(znodes.node_lockers(node.key)) == (0 if foreign is None else 1)
    assert (zk.client.kazoo.client_id, len(zk.client.orphans)) == (session, 0)


def test_node_lock_of_which_nobody_asks_any_more(zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes) -> None:
    """We hold a lock that we do not know of, in a session that lives: it is given back."""
    node.state = "building"

    def lock() -> None:
        zk.nodes.send_lock_and_save(node, exists=False)

    outage.lose_answer(lock, lambda: znodes.node_lockers(node.key))
    assert node.lock is None
    outage.end()
    wait_for("the lock is free", lambda: not znodes.node_lockers(node.key))
    wait_for("nothing is looked for any more", lambda: not zk.client.orphans)


def test_changed_by_somebody_else_after_it_was_locked(
    zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes
) -> None:
    node.state = "building"
    locking = outage.lose_answer(lambda: zk.nodes.lock_and_save(node), lambda: znodes.node_lockers(node.key))
    znodes.change_node(node.key, comment="foreign")
    outage.end()
    with pytest.raises(ZKConflict):
        locking.result(30)
    wait_for("the lock is free", lambda: not znodes.node_lockers(node.key))


def test_session_is_lost_too(
    zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes, zookeeper: ZooKeeperServer
) -> None:
    session = zk.client.kazoo.client_id
    locking = outage.lose_answer(lambda: zk.nodes.lock_and_save(node), lambda: znodes.node_lockers(node.key))
    expire_session(zookeeper.plain_hosts(), session)
    assert znodes.node_lockers(node.key) == []
    outage.end()
    with pytest.raises(ZKConnectionError):
        locking.result(30)
    assert node.lock is None
    wait_for("nothing is looked for any more", lambda: not zk.client.orphans)


@pytest.mark.parametrize("arrives", [True, False])
def test_request_lock_without_an_answer(
    zk: ZooKeeper, request_: NodeRequest, outage: Outage, znodes: PoolZnodes, arrives: bool
) -> None:
    """N-6: the node that is stored with it is known, too: nobody else would find it, and it takes up room."""
    request_id = request_.key
    zk.client.kazoo.ensure_path(paths.REQUEST_LOCKS)
    zk.client.kazoo.ensure_path(paths.NODES)
    request_.state = "pending"
    made = Node("small")
    made.allocated_to = request_id

    def lock() -> None:
        zk.requests.send_lock(request_, made)()

    if arrives:
        locking = outage.lose_answer(lock, lambda: znodes.request_state(request_id) == "pending")
    else:
        locking = outage.lose_question(lock)
    # Not the last one.
    others = [znodes.add_node("ready", type=["small"]) for _ in range(2)]
    outage.end()
    locking.result(30)
    assert len(znodes.request_lockers(request_id)) == 1
    assert set(znodes.nodes()) == {*others, made.key}
    zk.nodes.lock_and_save(made)
    zk.requests.finish(request_, [made])
    assert znodes.children(paths.REQUEST_LOCKS) == []


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("ephemeral", [True, False])
def test_place_behind_somebody_else_that_is_given_back_without_an_answer(
    shaky: ZooKeeperClient,
    competitor: Competitor,
    outage: Outage,
    znodes: PoolZnodes,
    arrives: bool,
    ephemeral: bool,
) -> None:
    """The session lives: a contender that nobody wants would keep the lock from all, without an end."""
    lock_dir = paths.election("stats")
    held = competitor.hold(lock_dir)
    delete = shaky.kazoo.delete

    def giving_back(path: str) -> Any:
        shaky.kazoo.delete = delete
        if arrives:
            giving = outage.lose_answer(lambda: delete(path), lambda: len(znodes.children(lock_dir)) == 1)
        else:
            giving = outage.lose_question(lambda: delete(path))
        return giving.result(30)

    shaky.kazoo.delete = giving_back
    with pytest.raises(ZKLockException):
        locks.acquire(shaky, lock_dir, blocking=False, ephemeral=ephemeral)
    outage.end()
    held.release()
    wait_for("the lock is free", lambda: not znodes.children(lock_dir))
    wait_for("nothing is looked for any more", lambda: not shaky.orphans)


@pytest.mark.parametrize("arrives", [True, False])
def test_fulfilment_without_an_answer(
    zk: ZooKeeper, request_: NodeRequest, node: Node, outage: Outage, znodes: PoolZnodes, arrives: bool
) -> None:
    """A request that was fulfilled must not be taken for a conflict, which would free its nodes."""
    request_id = request_.key
    request_.state = "pending"
    zk.requests.lock_and_save(request_)
    node.state, node.allocated_to = "ready", request_id
    zk.nodes.lock_and_save(node)
    request_.state, request_.nodes = "fulfilled", [node.key]

    def finish() -> None:
        zk.requests.finish(request_, [node])

    if arrives:
        finishing = outage.lose_answer(finish, lambda: znodes.request_state(request_id) == "fulfilled")
    else:
        finishing = outage.lose_question(finish)
    outage.end()
    finishing.result(30)
    assert (znodes.request_state(request_id), request_.version) == ("fulfilled", 2)
    assert (request_.lock, node.lock) == (None, None)
    assert znodes.node_lockers(node.key) == []
    assert znodes.children(paths.REQUEST_LOCKS) == []


def test_fulfilment_and_the_session_is_lost(
    zk: ZooKeeper, request_: NodeRequest, outage: Outage, znodes: PoolZnodes, zookeeper: ZooKeeperServer
) -> None:
    """Not written, and our lock is gone: a conflict, whoever has the request now."""
    request_.state = "pending"
    zk.requests.lock_and_save(request_)
    request_.state = "fulfilled"
    session = zk.client.kazoo.client_id
    finishing = outage.lose_question(lambda: zk.requests.finish(request_))
    expire_session(zookeeper.plain_hosts(), session)
    outage.end()
    with pytest.raises(ZKConflict):
        finishing.result(30)
    assert znodes.request_state(request_.key) == "pending"


def _locked(zk: ZooKeeper, node: Node) -> str:
    """Locks a node that is built; returns its id."""
    node.state = "building"
    zk.nodes.lock_and_save(node)
    return node.key


def test_removed_without_an_answer(zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes) -> None:
    node_id = _locked(zk, node)
    removing = outage.lose_answer(lambda: zk.deleteNode(node), lambda: node_id not in znodes.children(paths.NODES))
    outage.end()
    removing.result(30)
    assert node.lock is None


def test_not_removed(zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes) -> None:
    """It is removed with the next connection: the session lives, and with it a lock that nobody else could end."""
    node_id = _locked(zk, node)
    removing = outage.lose_question(lambda: zk.deleteNode(node))
    assert node_id in znodes.children(paths.NODES)
    outage.end()
    removing.result(30)
    assert node_id not in znodes.children(paths.NODES)


def test_not_removed_and_the_session_lost(
    zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes, zookeeper: ZooKeeperServer
) -> None:
    """Somebody else may have the node by now."""
    node_id = _locked(zk, node)
    session = zk.client.kazoo.client_id
    removing = outage.lose_question(lambda: zk.deleteNode(node))
    expire_session(zookeeper.plain_hosts(), session)
    outage.end()
    with pytest.raises(ZKConflict):
        removing.result(30)
    assert node_id in znodes.children(paths.NODES)


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("kind", [Node, NodeRequest])
def test_creation_without_an_answer(
    zk: ZooKeeper, outage: Outage, znodes: PoolZnodes, arrives: bool, kind: type[Node | NodeRequest]
) -> None:
    """The id was in the answer: it is found by what was written, and nothing is made twice."""
    root = paths.NODES if kind is Node else paths.REQUESTS
    zk.client.kazoo.ensure_path(root)
    made = kind()

    def create() -> None:
        if isinstance(made, Node):
            zk.storeNode(made)
        else:
            zk.storeNodeRequest(made)

    if arrives:
        creating = outage.lose_answer(create, lambda: znodes.children(root))
        # One of another process, which is younger.
        znodes.kazoo.create(f"{root}/", b"{}", sequence=True)
    else:
        creating = outage.lose_question(create)
    outage.end()
    creating.result(30)
    assert made.key in znodes.children(root)
    assert len(znodes.children(root)) == (2 if arrives else 1)
    made.state = "building" if isinstance(made, Node) else "pending"
    if isinstance(made, Node):
        zk.storeNode(made)
    else:
        zk.storeNodeRequest(made)


@pytest.mark.parametrize("kind", [Node, NodeRequest])
def test_creation_without_an_answer_and_taken_by_another_process(
    zk: ZooKeeper, outage: Outage, znodes: PoolZnodes, kind: type[Node | NodeRequest]
) -> None:
    """S-10: a static host that another launcher hands out at once has one node, not two."""
    root = paths.NODES if kind is Node else paths.REQUESTS
    zk.client.kazoo.ensure_path(root)
    made = kind()
    store: Callable[[Any], None] = zk.storeNode if kind is Node else zk.storeNodeRequest
    creating = outage.lose_answer(lambda: store(made), lambda: znodes.children(root))
    (name,) = znodes.children(root)
    if kind is Node:
        znodes.change_node(name, state="in-use")
    else:
        znodes.change_request(name, state="pending")
    outage.end()
    creating.result(30)
    assert (znodes.children(root), made.key) == ([name], name)
    with pytest.raises(ZKConflict):
        store(made)


def registered_without_an_answer(zk: ZooKeeper, outage: Outage, znodes: PoolZnodes) -> Registration:
    """A pool whose entry was written, but the launcher does not know it."""
    pool = PoolComponent("host", "12.0")
    pool.id = "pool-id"
    registration = Registration(zk.client, pool)
    zk.client.kazoo.ensure_path(POOLS)
    registering = outage.lose_answer(registration.update, znodes.pools)
    outage.end()
    with pytest.raises(ZKConnectionError):
        registering.result(30)
    return registration


def test_registration_without_an_answer(zk: ZooKeeper, outage: Outage, znodes: PoolZnodes) -> None:
    """The entry is there once: a second one that nobody serves would keep requests from failing."""
    registration = registered_without_an_answer(zk, outage, znodes)
    registration.ensure()
    assert [found["id"] for found in znodes.pools()] == ["pool-id"]
    registration.update(paused=True)
    assert [found["paused"] for found in znodes.pools()] == [True]


def test_registration_without_an_answer_that_ends(zk: ZooKeeper, outage: Outage, znodes: PoolZnodes) -> None:
    registration = registered_without_an_answer(zk, outage, znodes)
    registration.unregister()
    assert znodes.pools() == []


def test_disconnect_ends_calls_that_wait(zk: ZooKeeper, node: Node, outage: Outage) -> None:
    """Shutdown is bounded, also while ZooKeeper is away."""
    node.state = "building"
    saving = outage.lose_question(lambda: zk.storeNode(node))
    zk.client.disconnect()
    with pytest.raises(ZKConnectionError):
        saving.result(30)
