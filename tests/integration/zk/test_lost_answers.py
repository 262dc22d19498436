# SPDX-License-Identifier: Apache-2.0
"""Writes whose answer is lost with the connection: done or not, nothing is done twice and no lock stays behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from nodepool.exceptions import ZKConflict, ZKConnectionError, ZKLockException
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import PoolComponent
from nodepool.zk import paths, transactions
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.components import Registration
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper
from tests.support.kazoo_lock import Competitor
from tests.support.pool_znodes import POOLS, PoolZnodes
from tests.support.session_loss import expire_session
from tests.support.tcp_proxy import TcpProxy
from tests.support.wait import present, wait_for
from tests.support.zookeeper import ZooKeeperServer

#: Does the question arrive whose answer is lost?
arrives_or_not = pytest.mark.parametrize("arrives", [True, False])


class Outage:
    """Runs a call over a connection that fails in the middle of it."""

    def __init__(self, client: ZooKeeperClient, proxy: TcpProxy, pool: ThreadPoolExecutor) -> None:
        self.client = client
        self._proxy = proxy
        self._pool = pool

    def begin(
        self, call: Callable[[], object], written: Callable[[], object], *, arrives: bool = True
    ) -> Future[object]:
        """The connection is down when this returns.

        :param written: tells by what others see that the write arrived.
        """
        self._proxy.mute, self._proxy.deaf, self._proxy.swallowed = arrives, not arrives, 0
        future = self._pool.submit(call)
        wait_for("it is on its way", written if arrives else lambda: self._proxy.swallowed)
        self._proxy.take_down()
        wait_for("the loss is seen", lambda: self.client.suspended)
        self._proxy.mute = self._proxy.deaf = False
        return future

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
    """Is stored, and about to be built."""
    made = Node("small")
    zk.storeNode(made)
    made.state = "building"
    return made


@pytest.fixture
def request_(zk: ZooKeeper, znodes: PoolZnodes) -> NodeRequest:
    """Is about to be served."""
    found = present(zk.getNodeRequest(znodes.submit(["small"])))
    found.state = "pending"
    return found


@arrives_or_not
def test_save(zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes, arrives: bool) -> None:
    """It is seen by reading whether it was written; it is written once."""
    saving = outage.begin(lambda: zk.storeNode(node), lambda: znodes.nodes("building"), arrives=arrives)
    assert list(znodes.nodes("building")) == [node.key] * arrives
    outage.end()
    saving.result(30)
    assert (node.version, znodes.kazoo.exists(paths.node(node.key)).version) == (1, 1)
    assert znodes.nodes("building")


@pytest.mark.parametrize("lock", [False, True])
@pytest.mark.parametrize("gone", [False, True])
def test_changed_by_another_process_meanwhile(
    zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes, lock: bool, gone: bool
) -> None:
    write = zk.nodes.lock_and_save if lock else zk.storeNode
    writing = outage.begin(lambda: write(node), lambda: znodes.nodes("building"))
    znodes.vanish(node.key) if gone else znodes.change_node(node.key, comment="foreign")
    outage.end()
    with pytest.raises(ZKConflict):
        writing.result(30)
    wait_for("the lock is free", lambda: not znodes.node_lockers(node.key))


@arrives_or_not
def test_node_lock(zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes, arrives: bool) -> None:
    """N-3: it is ours, whether it was taken before the connection broke or is taken after that."""
    session = zk.client.kazoo.client_id
    locking = outage.begin(lambda: zk.nodes.lock_and_save(node), lambda: znodes.node_lockers(node.key), arrives=arrives)
    # One who waits behind us, or who will not let us take it any more.
    foreign = znodes.kazoo.create(f"{paths.node_lock(node.key)}/ffff__lock__", b"", sequence=True) if arrives else None
    outage.end()
    locking.result(30)
    assert zk.nodes.surely_locked(node)
    assert (list(znodes.nodes("building")), node.version) == ([node.key], 1)
    for ours in (1, 0):
        assert len(znodes.node_lockers(node.key)) == ours + (foreign is not None)
        if ours:
            zk.unlockNode(node)
    assert (zk.client.kazoo.client_id, len(zk.client.orphans)) == (session, 0)


def test_node_lock_that_is_not_wanted_any_more(zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes) -> None:
    """We hold a lock that we do not know of, in a session that lives: it is given back."""
    outage.begin(lambda: zk.nodes.send_lock_and_save(node, exists=False), lambda: znodes.node_lockers(node.key))
    assert node.lock is None
    outage.end()
    wait_for("the lock is free", lambda: not znodes.node_lockers(node.key))
    wait_for("nothing is looked for any more", lambda: not zk.client.orphans)


@arrives_or_not
def test_request_lock(zk: ZooKeeper, request_: NodeRequest, outage: Outage, znodes: PoolZnodes, arrives: bool) -> None:
    """N-6: the node that is stored with it is known, too: nobody else would find it, and it takes up room."""
    request_id = request_.key
    for path in (paths.REQUEST_LOCKS, paths.NODES):
        zk.client.kazoo.ensure_path(path)
    made = Node("small")
    made.allocated_to = request_id
    locking = outage.begin(
        lambda: zk.requests.send_lock(request_, made)(),
        lambda: znodes.request_state(request_id) == "pending",
        arrives=arrives,
    )
    # Not the last one.
    others = [znodes.add_node("ready", type=["small"]) for _ in range(2)]
    outage.end()
    locking.result(30)
    assert len(znodes.request_lockers(request_id)) == 1
    assert set(znodes.nodes()) == {*others, made.key}
    zk.nodes.lock_and_save(made)
    zk.requests.finish(request_, [made])
    assert znodes.children(paths.REQUEST_LOCKS) == []


@arrives_or_not
@pytest.mark.parametrize("ephemeral", [True, False])
def test_place_behind_another_process_that_is_given_back(
    shaky: ZooKeeperClient,
    competitor: Competitor,
    outage: Outage,
    znodes: PoolZnodes,
    monkeypatch: pytest.MonkeyPatch,
    arrives: bool,
    ephemeral: bool,
) -> None:
    """The session lives: a contender that nobody wants would keep the lock from all, without an end."""
    lock_dir = paths.election("stats")
    held = competitor.hold(lock_dir)
    delete = shaky.kazoo.delete

    def giving_back(path: str) -> Any:
        monkeypatch.undo()
        given_back = outage.begin(lambda: delete(path), lambda: len(znodes.children(lock_dir)) == 1, arrives=arrives)
        return given_back.result(30)

    monkeypatch.setattr(shaky.kazoo, "delete", giving_back)
    with pytest.raises(ZKLockException):
        transactions.acquire(shaky, lock_dir, blocking=False, ephemeral=ephemeral)
    outage.end()
    held.release()
    wait_for("the lock is free", lambda: not znodes.children(lock_dir))
    wait_for("nothing is looked for any more", lambda: not shaky.orphans)


@arrives_or_not
def test_fulfilment(
    zk: ZooKeeper, request_: NodeRequest, node: Node, outage: Outage, znodes: PoolZnodes, arrives: bool
) -> None:
    """A request that was fulfilled must not be taken for a conflict, which would free its nodes."""
    zk.requests.send_lock(request_)()
    node.state, node.allocated_to = "ready", request_.key
    zk.nodes.lock_and_save(node)
    request_.state, request_.nodes = "fulfilled", [node.key]
    finishing = outage.begin(
        lambda: zk.requests.finish(request_, [node]),
        lambda: znodes.request_state(request_.key) == "fulfilled",
        arrives=arrives,
    )
    outage.end()
    finishing.result(30)
    assert (znodes.request_state(request_.key), request_.version) == ("fulfilled", 2)
    assert (request_.lock, node.lock, znodes.node_lockers(node.key)) == (None, None, [])
    assert znodes.children(paths.REQUEST_LOCKS) == []


@arrives_or_not
def test_removal(zk: ZooKeeper, node: Node, outage: Outage, znodes: PoolZnodes, arrives: bool) -> None:
    """It is removed once more: the session lives, and with it a lock that nobody else could end."""
    zk.nodes.lock_and_save(node)
    removing = outage.begin(lambda: zk.deleteNode(node), lambda: not znodes.nodes(), arrives=arrives)
    assert list(znodes.nodes()) == [node.key] * (not arrives)
    outage.end()
    removing.result(30)
    assert (node.lock, znodes.children(paths.NODES)) == (None, [])


@pytest.mark.parametrize("what", ["lock", "fulfilment", "removal"])
def test_session_is_lost_too(
    zk: ZooKeeper,
    node: Node,
    request_: NodeRequest,
    outage: Outage,
    znodes: PoolZnodes,
    zookeeper: ZooKeeperServer,
    what: str,
) -> None:
    """What was not written is a conflict, whoever has node and request now; a lock that was taken is lost."""
    session = zk.client.kazoo.client_id
    zk.requests.send_lock(request_)()
    if what == "removal":
        zk.nodes.lock_and_save(node)
    calls: dict[str, Callable[[], object]] = {
        "lock": lambda: zk.nodes.lock_and_save(node),
        "fulfilment": lambda: zk.requests.finish(request_),
        "removal": lambda: zk.deleteNode(node),
    }
    call = outage.begin(calls[what], lambda: znodes.node_lockers(node.key), arrives=what == "lock")
    expire_session(zookeeper.plain_hosts(), session)
    assert znodes.node_lockers(node.key) == []
    outage.end()
    with pytest.raises(ZKConnectionError if what == "lock" else ZKConflict):
        call.result(30)
    assert (znodes.request_state(request_.key), list(znodes.nodes())) == ("pending", [node.key])
    assert (node.lock is None) is (what != "removal")
    wait_for("nothing is looked for any more", lambda: not zk.client.orphans)


@pytest.mark.parametrize("kind", [Node, NodeRequest])
@pytest.mark.parametrize("arrives", [True, False, "taken"])
def test_creation(
    zk: ZooKeeper, outage: Outage, znodes: PoolZnodes, arrives: bool | str, kind: type[Node | NodeRequest]
) -> None:
    """The id was in the answer: it is found by what was written, and nothing is made twice.

    S-10: a static host that another launcher hands out at once has one node, not two.
    """
    root, state = (paths.NODES, "in-use") if kind is Node else (paths.REQUESTS, "pending")
    zk.client.kazoo.ensure_path(root)
    made = kind()
    store: Callable[[Any], None] = zk.storeNode if kind is Node else zk.storeNodeRequest
    creating = outage.begin(lambda: store(made), lambda: znodes.children(root), arrives=bool(arrives))
    if arrives == "taken":
        (name,) = znodes.children(root)
        (znodes.change_node if kind is Node else znodes.change_request)(name, state=state)
    elif arrives:
        # One of another process, which is younger.
        znodes.kazoo.create(f"{root}/", b"{}", sequence=True)
    outage.end()
    creating.result(30)
    assert made.key in znodes.children(root)
    assert len(znodes.children(root)) == 1 + (arrives is True)
    made.state = "building" if kind is Node else "pending"
    if arrives == "taken":
        with pytest.raises(ZKConflict):
            store(made)
    else:
        store(made)


@pytest.mark.parametrize("ends", [True, False])
def test_registration(zk: ZooKeeper, outage: Outage, znodes: PoolZnodes, ends: bool) -> None:
    """The entry is there once, or not any more: one that nobody serves would keep requests from failing."""
    pool = PoolComponent("host", "12.0")
    pool.id = "pool-id"
    registration = Registration(zk.client, pool)
    zk.client.kazoo.ensure_path(POOLS)
    registering = outage.begin(registration.update, znodes.pools)
    outage.end()
    with pytest.raises(ZKConnectionError):
        registering.result(30)
    if ends:
        registration.unregister()
        assert znodes.pools() == []
        return
    registration.ensure()
    assert [found["id"] for found in znodes.pools()] == ["pool-id"]
    registration.update(paused=True)
    assert [found["paused"] for found in znodes.pools()] == [True]


def test_disconnect_ends_calls_that_wait(zk: ZooKeeper, node: Node, outage: Outage) -> None:
    """Shutdown is bounded, also while ZooKeeper is away."""
    saving = outage.begin(lambda: zk.storeNode(node), lambda: False, arrives=False)
    zk.client.disconnect()
    with pytest.raises(ZKConnectionError):
        saving.result(30)
