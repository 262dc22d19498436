# SPDX-License-Identifier: Apache-2.0
"""`NodeIndex`: what is asked of all nodes, in one pass."""

from __future__ import annotations

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.plan.observed import NodeIndex, Observed


def node(number: int, state: str, request: str | None = None) -> Node:
    made = Node("small")
    made.id, made.state = f"{number:010}", state
    made.provider, made.pool, made.allocated_to = "cloud", "main", request
    return made


def test_one_pass() -> None:
    nodes = [node(1, states.READY), node(2, states.READY, "200-1"), node(3, states.DELETING), node(4, states.HOLD)]
    index = NodeIndex.of(iter(nodes))
    assert index.counts == {
        ("cloud", "main", states.READY): 2,
        ("cloud", "main", states.DELETING): 1,
        ("cloud", "main", states.HOLD): 1,
    }
    assert (index.deleting, index.held) == ([nodes[2]], [nodes[3]])
    assert index.allocated_to(["200-1", "200-2"]) == {"0000000002": nodes[1]}


def test_nothing() -> None:
    index = NodeIndex.of([])
    assert (dict(index.counts), index.deleting, index.held) == ({}, [], [])
    assert index.allocated_to(["200-1"]) == {}


def test_is_made_once_for_all_times() -> None:
    """What was found out at one time is not looked for again at another; the time is another one."""
    seen = Observed(1.0, nodes={"0000000001": node(1, states.READY)})
    assert seen.at(2.0).node_index is not seen.node_index, "it had not been asked for before"
    later = seen.at(3.0)
    assert (later.now, later.node_index, later.nodes) == (3.0, seen.node_index, seen.nodes)
