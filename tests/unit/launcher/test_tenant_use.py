# SPDX-License-Identifier: Apache-2.0
"""What the nodes of a tenant use, over all providers (rule Q-15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from nodepool.launcher.tenant_use import TenantUse
from nodepool.model.node import Node


class Nodes:
    """The part of the node cache that is asked."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.refreshed = 0
        self.tell: Callable[[str], None] = lambda node_id: None

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.tell = listener

    def remove_listener(self, listener: Callable[[str], None]) -> None:
        self.tell = lambda node_id: None

    def get(self, node_id: str) -> Node | None:
        return self.nodes.get(node_id)

    def ids(self) -> list[str]:
        return list(self.nodes)

    def values(self) -> list[Node]:
        return list(self.nodes.values())

    def refresh_stale(self) -> None:
        self.refreshed += 1

    def put(self, node_id: str, provider: str, tenant: str | None) -> None:
        node = Node("small", id=node_id)
        node.provider, node.tenant_name, node.resources = provider, tenant, {"instances": 1, "cores": 4}
        self.nodes[node_id] = node
        self.tell(node_id)


def test_of_all_providers() -> None:
    """What changed under somebody's lock is asked for, to count the next time."""
    nodes = Nodes()
    use = TenantUse(cast(Any, type("Cache", (), {"nodes": nodes})()))
    for number, (provider, tenant) in enumerate([("one", "poor"), ("two", "poor"), ("one", "rich"), ("one", None)]):
        nodes.put(str(number), provider, tenant)
    assert use.used("poor").quota["compute"] == {"instances": 2, "cores": 8, "ram": 0}
    del nodes.nodes["0"]
    nodes.tell("0")
    assert use.used("poor").quota["compute"]["instances"] == 1
    assert use.used("nobody").quota["compute"]["instances"] == 0
    assert nodes.refreshed == 3
    assert use.known("poor").quota["compute"]["instances"] == 1
    assert nodes.refreshed == 3
