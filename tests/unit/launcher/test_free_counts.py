# SPDX-License-Identifier: Apache-2.0
"""Free nodes of each pool are counted with each event, and again when everything was read anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from nodepool.launcher.free_counts import FreeCounts
from nodepool.model.node import Node
from nodepool.plan.assignment import PoolInfo

POOL = PoolInfo("1", "cloud", frozenset({"small", "large"}), 100, False, "main")
OTHER = PoolInfo("2", "cloud", frozenset({"small"}), 100, False, "other")


class Cache:
    """Nodes, and who is told of them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.locked: set[str] = set()
        self.tell: Callable[[str], None] = lambda node_id: None
        self.get = self.nodes.get

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.tell = listener

    def ids(self) -> list[str]:
        return list(self.nodes)

    def is_locked(self, node_id: str) -> bool:
        return node_id in self.locked

    def put(self, node_id: str, *labels: str, **fields: Any) -> Node:
        node = self.nodes[node_id] = Node()
        node.id, node.type, node.state, node.provider, node.pool = node_id, list(labels), "ready", "cloud", "main"
        for name, value in fields.items():
            setattr(node, name, value)
        self.tell(node_id)
        return node


@pytest.fixture
def cache() -> Cache:
    return Cache()


@pytest.fixture
def counts(cache: Cache) -> FreeCounts:
    return FreeCounts(cast(Any, cache))


def test_enough_of_each_label(cache: Cache, counts: FreeCounts) -> None:
    assert not counts.could_serve(POOL, ["small"])
    cache.put("1", "small")
    cache.put("2", "small")
    cache.put("3", "large")
    assert counts.could_serve(POOL, ["small"])
    assert counts.could_serve(POOL, ["small", "large", "small"])
    assert not counts.could_serve(POOL, ["small", "small", "small"])
    assert not counts.could_serve(OTHER, ["small"])


def test_node_with_several_labels_is_one_node(cache: Cache, counts: FreeCounts) -> None:
    cache.put("1", "small", "large")
    assert counts.could_serve(POOL, ["small"])
    assert counts.could_serve(POOL, ["large"])
    assert not counts.could_serve(POOL, ["small", "large"])


@pytest.mark.parametrize("fields", [{"state": "in-use"}, {"allocated_to": "200-1"}])
def test_node_that_is_not_free(cache: Cache, counts: FreeCounts, fields: dict[str, Any]) -> None:
    cache.put("1", "small", **fields)
    assert not counts.could_serve(POOL, ["small"])


def test_node_that_comes_and_goes(cache: Cache, counts: FreeCounts) -> None:
    """Locked, free again, moved to another pool, removed: nothing is counted twice."""
    cache.put("1", "small")
    cache.locked.add("1")
    cache.tell("1")
    assert not counts.could_serve(POOL, ["small"])
    cache.locked.clear()
    cache.tell("1")
    cache.tell("1")
    assert counts.could_serve(POOL, ["small"])
    assert not counts.could_serve(POOL, ["small", "small"])
    cache.put("1", "small", pool="other")
    assert (counts.could_serve(POOL, ["small"]), counts.could_serve(OTHER, ["small"])) == (False, True)
    del cache.nodes["1"]
    cache.tell("1")
    assert not counts.could_serve(OTHER, ["small"])


def test_after_everything_was_read_anew(cache: Cache, counts: FreeCounts) -> None:
    """One event for all: what vanished meanwhile is not counted any more, what is new is."""
    cache.put("1", "small")
    node = cache.nodes.pop("1")
    node.type = ["large"]
    cache.nodes["2"] = node
    cache.tell("")
    assert (counts.could_serve(POOL, ["small"]), counts.could_serve(POOL, ["large"])) == (False, True)


def test_of_pool(cache: Cache, counts: FreeCounts) -> None:
    """W-1: free nodes by label, of this pool only."""
    cache.put("1", "small", "large")
    cache.put("2", "small")
    cache.put("3", "small", pool="other")
    assert counts.of_pool("cloud", "main") == {"small": 2, "large": 1}
    del cache.nodes["1"]
    cache.tell("1")
    assert counts.of_pool("cloud", "main") == {"small": 1}
    assert counts.of_pool("cloud", "unknown") == {}
