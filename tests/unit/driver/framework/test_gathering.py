# SPDX-License-Identifier: Apache-2.0
"""How the nodes of a request are gathered, launched and deleted, with a driver that does what the test says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from nodepool.driver.framework.node_tasks import NodeLauncher
from nodepool.driver.framework.places import MOST, RequestZones
from nodepool.driver.framework.quota_support import QuotaSupport
from nodepool.exceptions import (
    LaunchNetworkException,
    QuotaException,
    ServerCreateTimeoutException,
    ZKConflict,
    ZKConnectionError,
)
from nodepool.metrics.reports import report_launch
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.quota import QuotaInformation
from nodepool.plan.nodes import missing_labels
from nodepool.zk.locks import ZkLock
from tests.support.scripted_driver import ScriptedHandler, ScriptedProvider, Stage

NO_WAY = RuntimeError("no way")


def throw(error: BaseException) -> Callable[..., Any]:
    def do(*_: Any, **__: Any) -> Any:
        raise error

    return do


# -- ready nodes --


@pytest.mark.parametrize(
    ("steps", "chosen"),
    [
        ([], "z1"),
        # Left only while it is empty.
        ([("no_room", "z2")], "z1"),
        ([("no_room", "z1")], "z2"),
        ([("made", "z1"), ("no_room", "z1")], "z1"),
        # What was made counts, and not what was chosen.
        ([("made", "z2"), ("made", "z3")], "z2"),
        # A zone whose nodes came to nothing is left.
        ([("made", "z1"), ("made", "z1"), ("lost", "z1")], "z1"),
        ([("made", "z1"), ("lost", "z2"), ("lost", "z1")], "z2"),
    ],
)
def test_zone_of_a_request(steps: list[tuple[str, str]], chosen: str) -> None:
    """N-7: of those whose first node was to be in z1. Old requests are forgotten."""
    zones = RequestZones()
    assert zones.choose("a", "z1") == zones.choose("a", "z2") == "z1"
    for what, zone in steps:
        getattr(zones, what)("a", zone)
    assert zones.choose("a", "z2") == chosen
    assert zones.choose("b", "z9") == "z9"
    for number in range(MOST):
        zones.choose(str(number), "z1")
    assert zones.choose("a", "z7") == "z7"


class QuotaProvider(QuotaSupport, ScriptedProvider):
    def __init__(self, config: Any) -> None:
        QuotaSupport.__init__(self)
        ScriptedProvider.__init__(self, config)

    def quotaNeededByLabel(self, label: str, pool: Any) -> QuotaInformation:
        return QuotaInformation(cores=2, instances=1, ram=float("inf"))

    def unmanagedQuotaUsed(self) -> QuotaInformation:
        return QuotaInformation()

    getProviderLimits = unmanagedQuotaUsed

    def errorLabels(self) -> list[str]:
        return []


@pytest.mark.parametrize(
    ("cores", "has_place", "looks", "reused"),
    [
        # As a new one would be: all nodes are counted when it is locked, not before.
        (2, lambda locked: True, [True], True),
        (8, lambda locked: True, [False, True], True),
        # Too large for the tenant, or the limit was filled meanwhile: others can have it.
        (8, lambda locked: False, [False], False),
        (2, lambda locked: not locked, [True], False),
    ],
)
def test_tenant_has_no_place_for_a_ready_node(
    monkeypatch: pytest.MonkeyPatch, cores: int, has_place: Any, looks: list[bool], reused: bool
) -> None:
    """A-8, Q-15."""
    stage = Stage(QuotaProvider)
    stage.provider.room = 0
    ready = stage.add_ready(resources={"cores": cores, "instances": 1})
    seen: list[bool] = []

    def place(node: Node, *, reused: bool = False) -> bool:
        seen.append(stage.zk.isNodeLocked(ready))
        return bool(has_place(seen[-1]))

    monkeypatch.setattr(stage, "tenant_has_place", place)
    handler = stage.begin("small", tenant_name="poor")
    assert seen[: len(looks)] == looks
    assert bool(handler.reused) is stage.zk.isNodeLocked(ready) is reused


# -- new nodes --


def ahead_of(stage: Stage) -> ScriptedHandler:
    """A handler whose request is locked and its new node begun, but that has not begun to gather."""
    handler = stage.provider.getRequestHandler(stage, stage.submit("small"))
    handler.request.state = states.PENDING
    stage.zk.requests.send_lock(handler.request, handler.node_set.begin_ahead())()
    return handler


@pytest.mark.parametrize("how", ["create", "lock_and_save", "reused", "ahead"])
def test_lock_of_the_request_is_lost(stage: Stage, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A-11, N-3, N-6: nodes are written only under it, else they would have no owner; it is given back."""
    unders: list[Any] = []
    taken: list[Any] = []
    lock_of_request = stage.zk.requests.lock_and_save

    def lost(node: Node, identifier: str = "", under: Any = None) -> None:
        unders.append(under or identifier)
        raise ZKConflict("the lock of the request is lost")

    def lock(request: Any) -> None:
        lock_of_request(request)
        taken.append(request.lock)

    if how == "reused":
        stage.add_ready()
    monkeypatch.setattr(stage.zk.requests, "lock_and_save", lock)
    if how == "ahead":
        handler = ahead_of(stage)
        taken.append(handler.request.lock)
    monkeypatch.setattr(stage.zk.nodes, "create" if how == "create" else "lock_and_save", lost)
    if how == "ahead":
        handler.node_set.lock_ahead()
        handler.run()
        handler.node_set.drop_ahead()
    else:
        handler = stage.begin("small")
    assert handler.done
    assert handler.launched == handler.reused == []
    assert isinstance(taken[0], ZkLock)
    assert set(unders) == set(taken)


# -- requests that are declined, or given back --


class Standoff:
    """A request that was given back for ``first``, which holds a ready node, too, and waits."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.first = stage.submit("big", "big")
        stage.add_ready("big", allocated_to=self.first.id)
        self.first.state = states.PENDING
        stage.zk.requests.lock_and_save(self.first)
        ready = stage.add_ready("small")
        stage.provider.room = 0
        self.handler: ScriptedHandler = stage.begin("small", "small")
        assert self.handler.done
        stage.ready_nodes.put(ready)

    def end(self, state: str, do: Callable[[Any], Any]) -> None:
        self.first.state = state
        do(self.first)

    def reload(self) -> None:
        self.stage.config = self.stage.provider.provider = Stage().config


@pytest.mark.parametrize(
    "change",
    [
        lambda met: setattr(met.stage.provider, "room", 1),
        lambda met: met.end(states.FULFILLED, met.stage.zk.storeNodeRequest),
        lambda met: met.end(states.REQUESTED, met.stage.zk.requests.finish),
        lambda met: met.stage.zk.deleteNodeRequest(met.first),
        lambda met: met.stage.add_ready("small"),
        Standoff.reload,
    ],
    ids=["room", "served", "given back", "cancelled", "free node", "reload"],
)
def test_how_long_a_request_waits(stage: Stage, monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Q-10, Q-12, N-4: until something changes that may change its place, and nothing else."""
    # How long requests stand in each other's way is a constant: the test does not wait so long.
    monkeypatch.setattr(sys.modules[missing_labels.__module__], "PATIENCE_SECONDS", 0.0)
    met = Standoff(stage)
    assert met.handler.yields()
    met.handler.request.reuse = False
    stage.add_ready("small")
    assert met.handler.yields(), "free nodes are nothing for it"
    met.handler.request.reuse = True
    assert not met.handler.yields()
    met = Standoff(Stage())
    assert met.handler.yields()
    change(met)
    assert not met.handler.yields()


# -- launches --


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the launches that were counted."""
    keys: list[str] = []
    # There is one place of the process where launches are counted.
    monkeypatch.setattr(
        sys.modules[report_launch.__module__], "report_launch", lambda key, *args, **more: keys.append(key)
    )
    return keys


class Launcher(NodeLauncher):
    def __init__(self, handler: ScriptedHandler, do: Callable[[Node], object]) -> None:
        super().__init__(handler, handler.launched[0])
        self.do = do

    def launch(self) -> None:
        self.do(self.node)


class Unreadable(Exception):
    @property
    def statsd_key(self) -> str:
        raise NO_WAY


@pytest.mark.parametrize(
    ("do", "stored", "state", "key"),
    [
        (lambda node: setattr(node, "external_id", "x"), states.READY, states.READY, "ready"),
        (throw(LaunchNetworkException("no address")), states.FAILED, states.FAILED, "error.network"),
        (throw(QuotaException("full")), states.ABORTED, states.ABORTED, "error.quota"),
        (throw(ServerCreateTimeoutException("slow")), states.FAILED, states.FAILED, "error.servercreatetimeout"),
        (throw(NO_WAY), states.FAILED, states.FAILED, "error.unknown"),
        (throw(SystemExit(1)), states.FAILED, states.FAILED, "error.unknown"),
        (throw(ZKConnectionError("away")), states.FAILED, states.FAILED, "error.zksession"),
        # What is not stored is not ready. Not even an error that cannot be read leaves the handler waiting for ever.
        (throw(Unreadable()), states.BUILDING, states.FAILED, "error.unknown"),
        (lambda node: setattr(node, "driver_data", object()), states.BUILDING, states.FAILED, "error.unknown"),
    ],
)
def test_launches(stage: Stage, reported: list[str], do: Any, stored: str, state: str, key: str) -> None:
    """L-6, L-7, L-9, L-12: the class of the error decides; what the driver filled in is stored with `ready`."""
    launcher = Launcher(stage.begin("small"), do)
    launcher.run()
    assert launcher.complete
    [node] = stage.zk.nodeIterator()
    assert (node.state, launcher.node.state, reported) == (stored, state, [key])
    assert (node.external_id == "x") is (state == states.READY)


def test_launches_that_are_lost(stage: Stage, reported: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """L-9: a node that was deleted meanwhile is not the request's fault; a lost session is an error."""
    launcher = Launcher(stage.begin("small"), lambda node: stage.zk.deleteRawNode(node.key))
    launcher.run()
    assert launcher.node.state == states.ABORTED
    handler = stage.begin("small")
    monkeypatch.setattr(stage.zk.nodes, "save", throw(ZKConnectionError("away")))
    launcher = Launcher(handler, lambda node: None)
    launcher.run()
    assert (launcher.node.state, reported[-1]) == (states.FAILED, "error.zksession")


# -- deletions --
