# SPDX-License-Identifier: Apache-2.0
"""What nodes use, counted by what changed (rules Q-3, Q-15)."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodepool.driver.framework import quota_support
from nodepool.driver.framework.quota_support import NodeTally
from nodepool.model.node import Node
from nodepool.testing.memory_zk import MemoryZooKeeper


class Site:
    def __init__(self) -> None:
        self.zk = MemoryZooKeeper()
        self.looked = 0
        self.tally = NodeTally(self.zk.cache.nodes, self._groups)

    def _groups(self, node: Node) -> list[str]:
        self.looked += 1
        return [name for name in (node.provider, node.tenant_name) if name]

    def add(self, provider: str | None = "one", **resources: float) -> Node:
        node = Node("small")
        node.provider = provider
        node.resources = resources or None
        self.zk.storeNode(node)
        return node

    def use(self, group: str = "one") -> dict[str, float]:
        used = self.tally.used(group)[0].quota["compute"]
        return {name: value for name, value in used.items() if value}


@pytest.fixture
def site() -> Site:
    return Site()


def test_count_of_nodes(site: Site) -> None:
    first, second = site.add(cores=2), site.add()
    site.add("two")
    assert (site.tally.count("one"), site.tally.count("two"), site.tally.count("none")) == (2, 1, 0)
    first.provider = "two"
    site.zk.storeNode(first)
    site.zk.deleteRawNode(second.key)
    assert (site.tally.count("one"), site.tally.count("two")) == (0, 2)


def test_comes_and_goes(site: Site) -> None:
    """Q-3"""
    assert site.use() == {}
    first, second = site.add(cores=2, instances=1), site.add(cores=4, instances=1, volumes=3)
    site.add("two", cores=100)
    assert site.use() == {"cores": 6, "instances": 2, "volumes": 3}
    assert site.use("two") == {"cores": 100}
    first.resources = {"cores": 8}
    site.zk.storeNode(first)
    assert site.use() == {"cores": 12, "instances": 1, "volumes": 3}
    site.zk.deleteRawNode(second.key)
    assert site.use() == {"cores": 8}
    first.provider = "two"
    site.zk.storeNode(first)
    assert (site.use(), site.use("two")) == ({}, {"cores": 108})


def test_several_groups(site: Site) -> None:
    """Q-15: a node counts for its provider and for its tenant."""
    node = site.add(cores=2)
    node.tenant_name = "tenant"
    site.zk.storeNode(node)
    assert site.use("one") == site.use("tenant") == {"cores": 2}


def test_nodes_without_resources(site: Site) -> None:
    """Q-3: they are named, for whoever knows what they need."""
    node = site.add()
    assert [found.id for found in site.tally.used("one")[1]] == [node.id]
    assert site.tally.used("two")[1] == []
    node.resources = {"cores": 1}
    site.zk.storeNode(node)
    assert site.tally.used("one")[1] == []
    assert site.use() == {"cores": 1}


def test_fractions(site: Site) -> None:
    """Half processors: what comes and goes leaves nothing behind."""
    nodes = [site.add(cores=0.1) for _ in range(10)]
    assert site.use() == {"cores": 1.0}
    for node in nodes:
        site.zk.deleteRawNode(node.key)
    assert site.use() == {}


def test_cost_follows_the_change(site: Site) -> None:
    """One node more among a thousand costs one look."""
    for _ in range(1000):
        site.add(cores=1)
    site.use()
    before = site.looked
    site.add(cores=1)
    assert site.use() == {"cores": 1001}
    assert site.use() == {"cores": 1001}
    assert site.looked == before + 1


def test_everything_may_have_changed(site: Site) -> None:
    """After a lost connection all is counted anew."""
    site.add(cores=1)
    site.use()
    with site.zk.changed:
        site.zk.nodes.table._rows.clear()
    site.zk.nodes.table.tell("")
    assert site.use() == {}


def test_nobody_asks(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that nobody asks for do not pile up, and are not lost."""
    monkeypatch.setattr(quota_support, "_MANY", 10)
    for _ in range(100):
        site.zk.deleteRawNode(site.add(cores=1).key)
    assert len(site.tally._changes._ids) <= 11
    site.add(cores=1)
    assert site.use() == {"cores": 1}


def test_listener_goes_with_the_tally(site: Site) -> None:
    """A provider that a reload replaced is not kept alive by the cache."""
    assert len(site.zk.nodes.table.listeners) == 1
    del site.tally
    gc.collect()
    assert site.zk.nodes.table.listeners == []


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, "one", "two"]), st.floats(0, 8)), max_size=30))
def test_same_as_counting_all(steps: list[tuple[int, str | None, float]]) -> None:
    """Q-3: whatever happens, in whatever order, and whenever somebody asks."""
    site = Site()
    nodes: dict[int, Node] = {}
    for number, provider, cores in steps:
        node: Any = nodes.get(number)
        if provider is None:
            if node is not None:
                site.zk.deleteRawNode(nodes.pop(number).key)
            continue
        if node is None:
            node = nodes[number] = site.add(provider, cores=cores)
        else:
            node.provider, node.resources = provider, {"cores": cores}
            site.zk.storeNode(node)
        if number % 2:
            site.use()
    expected = sum(node.resources["cores"] for node in nodes.values() if node.provider == "one" and node.resources)
    assert site.use().get("cores", 0) == pytest.approx(expected, abs=1e-5)
