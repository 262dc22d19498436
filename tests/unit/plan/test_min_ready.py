# SPDX-License-Identifier: Apache-2.0
"""nodepool.plan.nodes: how many requests are missing (rules M)."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan.nodes import missing


def ready(*labels: str, **fields: Any) -> Node:
    node = Node(list(labels))
    node.state = "ready"
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def request(*labels: str, state: str = "requested", requestor: str = "NodePool:min-ready") -> NodeRequest:
    made = NodeRequest("900-1")
    made.node_types, made.state, made.requestor = list(labels), state, requestor
    return made


def test_need_minus_ready() -> None:
    """M-1, M-2: one request a node."""
    assert missing({"a": 3, "b": 1, "c": 1}, [ready("a"), ready("b")], []) == {"a": 2, "c": 1}


@pytest.mark.parametrize("node", [ready("a", allocated_to="200-1"), ready("a", state="building"), ready("b")])
def test_only_ready_unallocated_nodes_count(node: Node) -> None:
    """M-1"""
    assert missing({"a": 1}, [node], []) == {"a": 1}


@pytest.mark.parametrize("wanted", [0, -1])
def test_nothing_wanted(wanted: int) -> None:
    """M-5"""
    assert missing({"a": wanted}, [], []) == {}


@pytest.mark.parametrize("state", ["requested", "pending"])
def test_open_requests_of_all_launchers_count(state: str) -> None:
    """M-6: several launchers do not create more than the need together."""
    assert missing({"a": 3}, [ready("a")], [request("a", state=state)]) == {"a": 1}


def test_nodes_of_fulfilled_requests_count() -> None:
    """M-4, M-6: such a node is free in a moment; its request, which stays a little longer, does not count."""
    done = request("a", state="fulfilled")
    done.id = "900-1"
    assert missing({"a": 3}, [ready("a", allocated_to="900-1")], [done]) == {"a": 2}
    assert missing({"a": 3}, [ready("a")], [done]) == {"a": 2}


def test_failed_requests_do_not_count() -> None:
    """M-4: tried again next loop."""
    assert missing({"a": 1}, [], [request("a", state="failed")]) == {"a": 1}


def test_requests_of_others_do_not_count() -> None:
    assert missing({"a": 1}, [], [request("a", requestor="zuul")]) == {"a": 1}


def test_too_many() -> None:
    """M-8"""
    assert missing({"a": 1}, [ready("a"), ready("a")], [request("a")]) == {"a": -2}
    assert missing({"a": 1}, [], [request("a")]) == {}


def test_node_with_several_labels_counts_for_each() -> None:
    assert missing({"a": 1, "b": 1}, [ready("a", "b")], []) == {}
