# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodepool.launcher.event_ring import EventRing
from nodepool.launcher.hold_events import HoldEvents
from nodepool.model.event import Event
from nodepool.model.node import Node


class Nodes(dict[str, Node]):
    """A cache that the test fills."""

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.tell = listener

    def put(self, state: str, **fields: Any) -> None:
        node = self["7"] = Node("small", "7")
        node.state = state
        for name, value in fields.items():
            setattr(node, name, value)
        self.tell("7")


def test_each_hold_is_one_event() -> None:
    nodes: Any = Nodes()
    ring = EventRing()
    HoldEvents(nodes, ring, "l1")
    nodes.put("ready")
    assert ring.last(10) == []
    for _ in range(2):
        nodes.put("hold", state_time=5.0, comment="alice looks at it")
    assert ring.last(10) == [Event(5.0, "l1", "node 7", "held", "", "alice looks at it")]
    nodes.put("deleting")
    nodes.put("hold", state_time=500.0, hold_job="unit")
    assert [(event.at, event.text) for event in ring.last(10)] == [(5.0, "alice looks at it"), (500.0, "for job unit")]
    del nodes["7"]
    nodes.tell("7")
    nodes.put("hold", state_time=900.0)
    assert ring.last(1) == [Event(900.0, "l1", "node 7", "held")]


def test_held_again_while_the_connection_was_away() -> None:
    """Nobody has told that it was not on hold in between; also when another operator holds a held node."""
    nodes: Any = Nodes()
    ring = EventRing()
    HoldEvents(nodes, ring, "l1")
    nodes.put("hold", state_time=5.0, comment="alice looks at it")
    nodes.put("hold", state_time=700.0, comment="bob looks at it")
    assert [(event.at, event.text) for event in ring.last(10)] == [
        (5.0, "alice looks at it"),
        (700.0, "bob looks at it"),
    ]
