# SPDX-License-Identifier: Apache-2.0
"""What must hold while launchers of both kinds run; whose fault it was is told later (`tests.migration.judge`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tests.chaos import providers
from tests.chaos.events import Violations
from tests.chaos.invariants import GOING, Watcher
from tests.chaos.load import Load
from tests.chaos.world import PROVIDER, TENANT
from tests.migration.judge import Excess
from tests.migration.site import Site


class MixedWatcher(Watcher):
    """Collects each excess instead of judging it."""

    def __init__(self, site: Site, load: Load, violations: Violations) -> None:
        super().__init__(site, load, violations)
        self._site = site
        self.excesses: list[Excess] = []

    def look_at_limits(self, servers: Sequence[Mapping[str, Any]], nodes: Mapping[str, Mapping[str, Any]]) -> None:
        groups: dict[tuple[str, int], list[str]] = defaultdict(list)
        for server in servers:
            node_id = str(server["metadata"].get("nodepool_node_id"))
            node = nodes.get(node_id, {})
            groups[f"two servers for node {node_id}", 1].append(node_id)
            if node.get("provider") == PROVIDER:
                groups["max-servers", self._site.limits.servers].append(node_id)
            elif node.get("provider") == providers.PROVIDER:
                groups[f"max-servers of pool {node.get('pool')}", providers.POOL_SERVERS].append(node_id)
            if node.get("tenant_name") == TENANT:
                groups["the tenant's limit", self._site.limits.tenant].append(node_id)
        for node_id, node in nodes.items():
            if node.get("provider") == providers.STATIC_PROVIDER and node.get("state") not in GOING:
                groups[f"slot {node.get('slot')} of {node.get('hostname')}", 1].append(node_id)
        now = self._site.now()
        found = [Excess(what, most, tuple(ids), now) for (what, most), ids in groups.items()]
        self.excesses += [excess for excess in found if excess.late()]

    def look_at_counters(self) -> None:
        for bug in self._site.cloud.state()["bugs"]:
            raise AssertionError(f"bug in the simulator: {bug}")
