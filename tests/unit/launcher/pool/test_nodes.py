# SPDX-License-Identifier: Apache-2.0
"""Which nodes a pool may hand out now (rule N-2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodepool.launcher.pool import nodes
from nodepool.launcher.pool.nodes import ASIDE_SECONDS, FreeNodes
from nodepool.model.node import Node
from tests.support.manual_clock import ManualClock, monotonic_clock


class Pool:
    """`FreeNodes` of a pool, and the cache that it reads."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.locked: set[str] = set()
        self.told: list[str] = []
        cache = SimpleNamespace(get=self.nodes.get, is_locked=self.locked.__contains__)
        self.free = FreeNodes(cast(Any, cache), "one", "main", self.told.append)

    def add(self, node_id: str = "1", **fields: Any) -> Node:
        node = Node("small", id=node_id)
        node.state, node.provider, node.pool, node.version = "ready", "one", "main", 0
        for name, value in fields.items():
            setattr(node, name, value)
        self.nodes[node_id] = node
        self.free.consider(node_id)
        return node


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    return monotonic_clock(monkeypatch, nodes)


@pytest.fixture
def pool(clock: ManualClock) -> Pool:
    return Pool()


@pytest.mark.parametrize(
    "fields", [{"state": "building"}, {"allocated_to": "x"}, {"provider": "two"}, {"pool": "other"}, {"pool": None}]
)
def test_not_free(pool: Pool, fields: dict[str, Any]) -> None:
    """N-2: ready, unallocated, of the same provider and pool."""
    pool.add(**fields)
    assert len(pool.free.ready) == 0


def test_changes(pool: Pool) -> None:
    """N-2: a node comes and goes as the cache shows it; locked or reserved it is not free."""
    pool.add()
    assert "1" in pool.free.ready
    for take, let_go in ((pool.locked.add, pool.locked.discard), (pool.free.reserve, pool.free.release)):
        take("1")
        pool.free.consider("1")
        assert "1" not in pool.free.ready
        let_go("1")
        pool.free.consider("1")
        assert "1" in pool.free.ready
    del pool.nodes["1"]
    pool.free.consider("1")
    assert "1" not in pool.free.ready


def test_refused_node_is_left_alone(pool: Pool, clock: ManualClock) -> None:
    """N-2: a node that the driver's check refused is not offered again at once, but it is not forgotten."""
    node = pool.add()
    pool.free.set_aside(node)
    pool.free.consider("1")
    assert "1" not in pool.free.ready
    assert pool.free.next_look() == ASIDE_SECONDS
    clock.pass_seconds(ASIDE_SECONDS)
    assert pool.free.next_look() is None
    assert pool.told == ["1"]
    pool.free.consider("1")
    assert "1" in pool.free.ready


def test_refused_node_that_changed(pool: Pool) -> None:
    """N-2: another record is another question."""
    pool.free.set_aside(pool.add())
    pool.add(version=1)
    assert "1" in pool.free.ready
    assert pool.free.next_look() is None


def test_oldest_unused(pool: Pool) -> None:
    """Q-8: also one that the driver refuses can go; one that is in use meanwhile cannot."""
    assert pool.free.oldest_unused() is None
    pool.add("1", state_time=200.0)
    refused = pool.add("2", state_time=100.0)
    pool.free.set_aside(refused)
    assert pool.free.oldest_unused() is refused
    pool.nodes["2"].allocated_to = "x"
    oldest = pool.free.oldest_unused()
    assert oldest is not None
    assert oldest.id == "1"
