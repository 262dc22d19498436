# SPDX-License-Identifier: Apache-2.0
"""Gathering the nodes of a request (rules N)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from nodepool.driver.framework.quota_support import QuotaSupport, QuotaUnknown
from nodepool.exceptions import QuotaException, ZKConflict, ZKConnectionError
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.quota import QuotaInformation
from nodepool.zk.locks import ZkLock
from tests.support.scripted_driver import ScriptedHandler, ScriptedProvider, Stage


def test_reuse(stage: Stage) -> None:
    """N-2, N-3: locked, allocated, with tenant and requestor; the driver is told."""
    ready = stage.add_ready()
    handler = stage.begin("small", tenant_name="tenant")
    assert [node.id for node in handler.nodeset] == [ready.id]
    node = stage.zk.getNode(ready.key)
    assert node is not None
    assert (node.state, node.allocated_to, node.tenant_name, node.requestor) == (
        states.READY,
        handler.request.id,
        "tenant",
        "contract",
    )
    assert stage.zk.isNodeLocked(node)
    assert [node.id for node in handler.reused] == [ready.id]
    assert handler.launched == []


def test_no_place_for_a_ready_node(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-8, Q-15: another launcher filled the tenant's limit at the same time; the ready node is free again."""
    ready = stage.add_ready()
    asked: list[tuple[str | None, bool]] = []

    def has_place(node: Node, *, reused: bool = False) -> bool:
        asked.append((node.id, reused))
        return not stage.zk.isNodeLocked(ready)

    monkeypatch.setattr(stage, "tenant_has_place", has_place)
    handler = stage.begin("small", tenant_name="poor")
    assert asked == [(ready.id, True)] * 2, "before it is taken, and when nobody else can take it any more"
    assert handler.reused == handler.launched == []
    assert handler.poll()
    assert stage.request(handler).state == states.REQUESTED
    assert stage.nodes() == [(states.READY, None, False)]


def test_ready_node_that_is_too_large(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-8, Q-15: a new one is made for its tenant; others can have it."""
    large, small = stage.add_ready(resources={"cores": 8}), stage.add_ready(resources={"cores": 1})
    monkeypatch.setattr(
        stage, "tenant_has_place", lambda node, *, reused=False: not reused or node.resources["cores"] == 1
    )
    stage.provider.room = 0
    handler = stage.begin("small", "small", tenant_name="poor")
    assert [node.id for node in handler.reused] == [small.id]
    assert (large.key) in stage.ready_nodes
    assert not stage.zk.isNodeLocked(large)
    assert not handler.node_set.can_reuse_all()
    stage.provider.room = 1
    handler.run()
    assert len(handler.launched) == 1


@pytest.mark.parametrize("cores", [2, 8])
def test_look_at_the_size_of_a_ready_node(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """A-8, Q-15: all nodes are counted before one is taken only if it is not as a new one would be."""
    stage = Stage(Cloud)
    ready = stage.add_ready(resources={"cores": cores, "instances": 1})
    looks: list[bool] = []

    def has_place(node: Node, *, reused: bool = False) -> bool:
        looks.append(stage.zk.isNodeLocked(ready))
        return True

    monkeypatch.setattr(stage, "tenant_has_place", has_place)
    stage.begin("small", tenant_name="poor")
    assert looks == ([True] if cores == 2 else [False, True])


def test_no_reuse(stage: Stage) -> None:
    """N-4"""
    stage.add_ready()
    handler = stage.begin("small", reuse=False)
    assert handler.reused == []
    assert len(handler.launched) == 1


def test_node_with_several_labels(stage: Stage) -> None:
    """N-5: it serves any one of them, once; a plainer node is spent first."""
    both, plain = stage.add_ready("small", "big"), stage.add_ready("small")
    handler = stage.begin("small", "big", "big")
    assert [node.id for node in handler.nodeset[:2]] == [plain.id, both.id]
    assert [node.type for node in handler.launched] == [["big"]]


def test_order_and_duplicates(stage: Stage) -> None:
    """N-1, N-8: the order of the labels, whatever was there before."""
    big = stage.add_ready("big")
    handler = stage.begin("small", "big", "small")
    handler.end(0, states.READY)
    handler.end(1, states.READY)
    assert handler.poll()
    nodes = [stage.zk.getNode(node_id) for node_id in stage.request(handler).nodes]
    assert [node.type if node else None for node in nodes] == [["small"], ["big"], ["small"]]
    assert nodes[1] is not None
    assert nodes[1].id == big.id


def test_zone_of_the_first_reused_node(stage: Stage) -> None:
    """N-7: the others come from the same zone, new ones too; nodes elsewhere are left alone."""
    here = [stage.add_ready(az="a"), stage.add_ready(az="a")]
    elsewhere = stage.add_ready(az="b")
    handler = stage.begin("small", "small", "small")
    assert {node.id for node in handler.nodeset[:2]} == {node.id for node in here}
    assert [node.az for node in handler.nodeset] == ["a", "a", "a"]
    assert not stage.zk.isNodeLocked(elsewhere)


def test_zone_of_the_first_new_node(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-7: the driver picks one zone; all new nodes get it."""
    zones = iter("abc")

    def pick(handler: ScriptedHandler, node: Node) -> None:
        if node.az is None:
            node.az = next(zones)

    monkeypatch.setattr(ScriptedHandler, "setNodeMetadata", pick)
    handler = stage.begin("small", "small", "small")
    assert [node.az for node in handler.nodeset] == ["a", "a", "a"]


def test_node_that_was_taken(stage: Stage) -> None:
    """N-2: the state is checked again under the lock; another one is taken, then a new one made."""
    taken, changed, free = (stage.add_ready() for _ in range(3))
    stage.zk.lockNode(taken.copy())
    other = stage.zk.getNode(changed.key)
    assert other is not None
    other.allocated_to = "somebody"
    stage.zk.storeNode(other)
    handler = stage.begin("small", "small")
    assert free.id in [node.id for node in handler.nodeset]
    assert len(handler.launched) == 1
    assert len(stage.ready_nodes) == 0


def test_refused_node(stage: Stage) -> None:
    """N-2: a node that the driver's check refuses is set aside, not forgotten; a new one is made."""
    refused = stage.add_ready()
    stage.provider.refused.add(refused.id)
    handler = stage.begin("small")
    assert stage.aside == [refused]
    assert not stage.zk.isNodeLocked(refused)
    assert len(handler.launched) == 1


def test_check_that_raises(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-2: the node is refused, and there for others after a while; the request gets another one."""
    node = stage.add_ready()

    def fail(*_: Any) -> None:
        raise RuntimeError("no way")

    monkeypatch.setattr(ScriptedHandler, "checkReusableNode", fail)
    handler = stage.begin("small")
    assert len(handler.launched) == 1
    assert stage.aside == [node]


def test_check_that_takes_time(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-2: the slow form of the check is used where there is one."""
    asked: list[Node] = []

    def check(handler: ScriptedHandler, node: Node) -> Future[bool]:
        asked.append(node)
        future: Future[bool] = Future()
        future.set_result(True)
        return future

    monkeypatch.setattr(ScriptedHandler, "startReusableNodeCheck", check)
    ready = stage.add_ready()
    stage.begin("small")
    assert [node.id for node in asked] == [ready.id]


def test_new_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-6: stored as `init` with all that is known, then locked, then `building`, then launched."""
    stage = Stage(pool={"node-attributes": {"executor-zone": "z"}})
    steps: list[tuple[str, str, bool]] = []

    def noting(what: str, do: Callable[..., None]) -> Callable[..., None]:
        def call(node: Node, **options: Any) -> None:
            steps.append((what, node.state, node.lock is not None))
            do(node, **options)

        return call

    launch = ScriptedHandler.launch
    monkeypatch.setattr(stage.zk.nodes, "create", noting("create", stage.zk.nodes.create))
    monkeypatch.setattr(stage.zk.nodes, "lock_and_save", noting("lock", stage.zk.nodes.lock_and_save))
    monkeypatch.setattr(
        ScriptedHandler, "launch", lambda handler, node: noting("launch", lambda node: launch(handler, node))(node)
    )
    handler = stage.begin("small", tenant_name="tenant")
    assert steps == [
        ("create", states.INIT, False),
        ("lock", states.BUILDING, False),
        ("launch", states.BUILDING, True),
    ]
    [node] = stage.zk.nodeIterator()
    assert (node.type, node.provider, node.pool, node.launcher) == (["small"], "one", "main", stage.launcher_id)
    assert (node.allocated_to, node.tenant_name, node.requestor) == (handler.request.id, "tenant", "contract")
    assert node.attributes == {"executor-zone": "z"}


@pytest.mark.parametrize(("write", "reused"), [("create", False), ("lock_and_save", False), ("lock_and_save", True)])
def test_lock_of_the_request_is_lost(stage: Stage, monkeypatch: pytest.MonkeyPatch, reused: bool, write: str) -> None:
    """N-3, N-6: nodes are written only under it, else they would be nobody's; the request is given back."""
    if reused:
        stage.add_ready()
    unders: list[Any] = []
    taken: list[Any] = []
    lock_of_request = stage.zk.requests.lock_and_save

    def lost(node: Node, under: Any = None) -> None:
        unders.append(under)
        raise ZKConflict("the lock of the request is gone")

    def lock(request: Any) -> None:
        lock_of_request(request)
        taken.append(request.lock)

    monkeypatch.setattr(stage.zk.requests, "lock_and_save", lock)
    monkeypatch.setattr(stage.zk.nodes, write, lost)
    handler = stage.begin("small")
    assert handler.done
    assert handler.launched == handler.reused == []
    assert isinstance(taken[0], ZkLock)
    assert set(unders) == set(taken)


def test_attributes_are_the_nodes_own() -> None:
    """A driver that adds attributes to a node does not change the configuration."""
    stage = Stage(pool={"node-attributes": {"zones": ["z"]}})
    handler = stage.begin("small")
    attributes = handler.launched[0].attributes
    assert attributes is not None
    attributes["zones"].append("y")
    assert handler.pool.node_attributes == {"zones": ["z"]}


class Cloud(QuotaSupport, ScriptedProvider):
    def __init__(self, config: Any) -> None:
        QuotaSupport.__init__(self)
        ScriptedProvider.__init__(self, config)

    def quotaNeededByLabel(self, label: str, pool: Any) -> QuotaInformation:
        return QuotaInformation(cores=2, instances=1, ram=float("inf"))

    def unmanagedQuotaUsed(self) -> QuotaInformation:
        return QuotaInformation()

    def getProviderLimits(self) -> QuotaInformation:
        return QuotaInformation()

    def errorLabels(self) -> list[str]:
        return []


def test_resources_from_the_first_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-3, Q-15, L-1: a node counts for quota and tenant from the moment it exists."""

    stage = Stage(Cloud)
    stored: list[Any] = []
    create = stage.zk.nodes.create

    def note(node: Node, under: ZkLock | None) -> None:
        stored.append(node.resources)
        create(node, under)

    monkeypatch.setattr(stage.zk.nodes, "create", note)
    stage.begin("small")
    assert stored == [{"cores": 2, "instances": 1}], "numbers without an end cannot be stored"


def test_what_there_is_no_room_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Q-10: the own limits of the pool, in which those of other pools are in nobody's way, or what pools share."""
    stage = Stage(Cloud, pool={"max-servers": 1})
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    assert handler.node_set.full_pool() == "main"
    stage = Stage(Cloud)
    stage.provider.room = 1
    handler = stage.begin("small", "small")
    assert handler.node_set.full_pool() is None

    def unknown(label: str, pool: Any) -> QuotaInformation:
        raise QuotaUnknown("no answer yet")

    monkeypatch.setattr(stage.provider, "quotaNeededByLabel", unknown)
    assert handler.node_set.full_pool() is None


@pytest.mark.parametrize(
    ("error", "state"), [(RuntimeError("no way"), states.FAILED), (QuotaException("full"), states.ABORTED)]
)
def test_launch_that_raises(stage: Stage, error: Exception, state: str) -> None:
    """L-6, L-7: the outcome is stored; the node stays locked and ours until the request is over."""
    stage.provider.launch_error = error
    handler = stage.begin("small")
    assert stage.nodes() == [(state, handler.request.id, True)]


@pytest.mark.parametrize("error", [ZKConflict("it is gone"), ZKConnectionError("away")])
def test_lock_is_never_forgotten(stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A launch that fails, and whose failure cannot be stored either, leaves no lock without an owner."""
    stage.provider.launch_error = RuntimeError("no way")

    def fail(node: Node) -> None:
        raise error

    request = stage.submit("small")
    monkeypatch.setattr(stage.zk.nodes, "save", fail)
    if isinstance(error, ZKConnectionError):
        with pytest.raises(ZKConnectionError):
            stage.take(request)
        handler = stage.handler
        assert [node.lock is not None for node in handler.nodeset] == [True]
    else:
        handler = stage.take(request)
        assert handler.done
        assert [locked for _, _, locked in stage.nodes()] == [False]
