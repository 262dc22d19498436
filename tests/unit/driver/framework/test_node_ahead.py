# SPDX-License-Identifier: Apache-2.0
"""New nodes of several requests that are made together (rules N-6, Q-2)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.exceptions import ZKConflict
from nodepool.model import states
from tests.support.scripted_driver import ScriptedHandler, Stage


def accepted(stage: Stage) -> ScriptedHandler:
    """A handler whose request is locked and its new node begun, but that has not begun to gather."""
    handler = waiting(stage)
    lock(stage, handler)
    return handler


def waiting(stage: Stage) -> ScriptedHandler:
    return stage.provider.getRequestHandler(stage, stage.submit("small"))


def lock(stage: Stage, handler: ScriptedHandler) -> None:
    handler.request.state = states.PENDING
    stage.zk.requests.send_lock(handler.request, handler.node_set.begin_ahead())()


def test_nodes_are_there_when_their_turn_comes(stage: Stage) -> None:
    handlers = [accepted(stage) for _ in range(3)]
    for handler in handlers:
        handler.node_set.lock_ahead()
    assert stage.nodes() == [(states.BUILDING, handler.request.id, True) for handler in handlers]
    assert [handler.launched for handler in handlers] == [[], [], []]
    for handler in handlers:
        handler.run()
        handler.node_set.drop_ahead()
    assert [len(handler.launched) for handler in handlers] == [1, 1, 1]
    assert stage.nodes() == [(states.BUILDING, handler.request.id, True) for handler in handlers]


@pytest.mark.parametrize("ahead", [True, False])
def test_id_of_the_instance(stage: Stage, ahead: bool) -> None:
    """L-3: a name that follows from the node is stored with its lock."""
    stage.provider.prefix = "host-"
    handler = waiting(stage)
    if ahead:
        lock(stage, handler)
        handler.node_set.lock_ahead()
    else:
        stage.zk.lockNodeRequest(handler.request, blocking=False)
    handler.run()
    (node,) = stage.zk.nodeIterator()
    assert (node.external_id, node.state) == (f"host-{node.id}", states.BUILDING)
    assert stage.zk.isNodeLocked(node)


def test_its_room_is_not_counted_twice(stage: Stage) -> None:
    """Q-2: there was room when it was begun; now it takes up this room itself."""
    handler = accepted(stage)
    stage.provider.room = 0
    handler.run()
    assert len(handler.launched) == 1


def test_not_needed(stage: Stage) -> None:
    """A ready node came in between: the new one goes, and with it the room that it takes up."""
    handler = accepted(stage)
    ready = stage.add_ready()
    handler.run()
    assert [node.id for node in handler.nodeset] == [ready.id]
    handler.node_set.drop_ahead()
    assert stage.nodes() == [(states.READY, handler.request.id, True)]


def test_request_is_declined(stage: Stage) -> None:
    """A-14: nothing of it is left."""
    handler = accepted(stage)
    stage.provider.broken = ["small"]
    handler.run()
    handler.node_set.drop_ahead()
    assert handler.done
    assert stage.nodes() == []


def test_node_cannot_be_locked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-11: somebody was faster. The request is given back, and the node left to the one who has it."""
    handler = accepted(stage)

    def refuse(*_: Any) -> None:
        raise ZKConflict("somebody has it")

    monkeypatch.setattr(stage.zk.nodes, "lock_and_save", refuse)
    handler.node_set.lock_ahead()
    handler.run()
    handler.node_set.drop_ahead()
    assert handler.done
    assert stage.request(handler).state == states.REQUESTED
    assert handler.launched == []


def test_only_under_the_lock_of_the_request(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-6: when that is lost, somebody else serves the request."""
    handler = accepted(stage)
    unders: list[Any] = []

    def note(node: Any, identifier: str = "", under: Any = None) -> None:
        unders.append(under)
        raise ZKConflict("the lock of the request is gone")

    monkeypatch.setattr(stage.zk.nodes, "lock_and_save", note)
    assert handler.request.lock is not None
    held = handler.request.lock
    handler.node_set.lock_ahead()
    assert unders == [held]
    handler.run()
    handler.node_set.drop_ahead()
    assert handler.launched == []


def test_node_cannot_be_described(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-16: the error is met again when the handler gathers, and refuses this request only."""

    def fail(*_: Any) -> None:
        raise RuntimeError("no way")

    handler = waiting(stage)
    monkeypatch.setattr(handler, "setNodeMetadata", fail)
    lock(stage, handler)
    assert stage.nodes() == []
    handler.run()
    assert stage.request(handler).state == states.FAILED
