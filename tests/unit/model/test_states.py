# SPDX-License-Identifier: Apache-2.0
"""Moves between states (reference/zookeeper 4.3, 5.2)."""

from __future__ import annotations

from typing import TypeVar

import pytest

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.states import ImpossibleState

RecordT = TypeVar("RecordT", bound=Node | NodeRequest)


def stored(kind: type[RecordT], state: str) -> RecordT:
    """A record as it was read."""
    record = kind(id="0000000007")
    record.load({"state": state})
    record.version = 3
    return record


@pytest.mark.parametrize(
    ("kind", "moves", "names"),
    [
        (Node, states.NODE_MOVES, states.NODE_STATES),
        (NodeRequest, states.REQUEST_MOVES, states.REQUEST_STATES),
    ],
    ids=["node", "request"],
)
def test_only_moves_of_the_table(
    kind: type[Node] | type[NodeRequest], moves: dict[tuple[str, str], str], names: tuple[str, ...]
) -> None:
    """Every pair of states: a move of the table is made, the same state again too, any other changes nothing."""
    assert {name for move in moves for name in move} <= set(names)
    assert all(moves.values())
    for before in names:
        for after in names:
            record = stored(kind, before)
            if before == after or (before, after) in moves:
                record.state = after
                assert record.state == after
                continue
            with pytest.raises(ImpossibleState, match=f"{kind.__name__} 0000000007: {before} cannot become {after}"):
                record.state = after
            assert record.state == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (states.READY, states.BUILDING),
        (states.DELETING, states.READY),
        (states.DELETING, states.IN_USE),
        (states.USED, states.READY),
        (states.USED, states.IN_USE),
        (states.FAILED, states.READY),
        (states.HOLD, states.READY),
        (states.DELETED, states.READY),
        (states.BUILDING, states.INIT),
    ],
)
def test_what_must_never_be(before: str, after: str) -> None:
    """A node that somebody had, or that is to go, is given to nobody."""
    assert (before, after) not in states.NODE_MOVES


@pytest.mark.parametrize(
    ("before", "after"),
    [(states.READY, states.IN_USE), (states.IN_USE, states.USED), (states.IN_USE, states.HOLD)],
)
def test_moves_of_zuul(before: str, after: str) -> None:
    assert (before, after) in states.NODE_MOVES


@pytest.mark.parametrize("before", states.NODE_STATES)
def test_every_node_can_go(before: str) -> None:
    """Whatever is stored, its removal is possible (X-1)."""
    for after in (states.DELETING, states.DELETED):
        assert before == after or (before, after) in states.NODE_MOVES


def test_from_what_is_stored() -> None:
    """What was set, but not written, is replaced: the launch succeeded, but its node was lost."""
    node = stored(Node, states.BUILDING)
    node.state = states.READY
    node.state = states.ABORTED
    node.state = states.READY
    node.to_dict(1.0)
    with pytest.raises(ImpossibleState):
        node.state = states.BUILDING


def test_new_record() -> None:
    """It may begin in any state."""
    node = Node("small")
    node.state = states.USED
    node.state = states.READY
    assert node.state == states.READY


def test_what_others_stored_is_read() -> None:
    """No move is checked."""
    node = stored(Node, states.DELETING)
    node.load({"state": states.READY})
    assert node.state == states.READY
