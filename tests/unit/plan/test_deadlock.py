# SPDX-License-Identifier: Apache-2.0
"""What a request that is given back does with its nodes (rules Q-10, Q-12)."""

from __future__ import annotations

import pytest

from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan.nodes import in_the_way, missing_labels


def node(node_id: str, label: str | list[str], pool: str = "main") -> Node:
    made = Node(label if isinstance(label, str) else label[0], node_id)
    made.type = [label] if isinstance(label, str) else label
    made.pool = pool
    return made


def request(*labels: str, reuse: bool = True) -> NodeRequest:
    made = NodeRequest("100-1")
    made.node_types, made.reuse = list(labels), reuse
    return made


def test_missing_labels() -> None:
    assert missing_labels(request("a", "a", "b"), [node("1", "a")]) == {"a": 1, "b": 1}
    assert missing_labels(request("a", "b"), [node("1", ["x", "b"]), node("2", ["b", "a"])]) == {}


@pytest.mark.parametrize(
    ("mine", "goes"),
    [
        ([node("2", "a")], []),
        ([node("2", "a", "second")], ["2"]),
        ([node("2", "b")], ["2"]),
        ([node("2", ["b", "a"])], []),
        ([node("2", "b"), node("3", "b")], ["2"]),
        ([node("2", "b"), node("3", "a")], []),
        ([], []),
    ],
    ids=[
        "of use",
        "of another pool",
        "of another label",
        "of two labels",
        "only as many as it lacks",
        "enough",
        "none",
    ],
)
def test_in_the_way(mine: list[Node], goes: list[str]) -> None:
    """The first one holds an ``a`` of the main pool and lacks another."""
    assert [found.id for found in in_the_way(request("a", "a"), [node("1", "a")], mine)] == goes


def test_in_the_way_of_a_request_that_reuses_nothing() -> None:
    """N-4"""
    assert len(in_the_way(request("a", "a", reuse=False), [node("1", "a")], [node("2", "a")])) == 1
