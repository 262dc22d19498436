# SPDX-License-Identifier: Apache-2.0
"""What must hold while launchers of both kinds run, and whose fault it was if it did not.

Two launchers that see the same gap fill it both; the fault is of the one that came later. Ours stores a node and then
looks whether there is room for it and all that were stored before. The released launcher looks first. So its node may
come on top of a full limit. One of ours must not.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos import providers
from tests.chaos.events import Violations
from tests.chaos.invariants import GOING, Watcher
from tests.chaos.load import Load
from tests.chaos.transaction_log import Write
from tests.chaos.world import PROVIDER, TENANT
from tests.migration.site import Kind, Site
from tests.support.pool_znodes import NODES, POOLS
from tests.support.released import VERSION

NODE = re.compile(rf"{NODES}/(\d+)")


@dataclass(frozen=True)
class Excess:
    """More nodes at once than may be.

    :param what: the limit; ``nodes``: their ids; ``when``: seconds of the run.
    """

    what: str
    limit: int
    nodes: tuple[str, ...]
    when: float

    def late(self) -> Sequence[str]:
        """The nodes that came when the limit was reached."""
        return sorted(self.nodes)[self.limit :]


def kind_of(pool: Mapping[str, Any]) -> Kind:
    """Whose launcher has registered a pool."""
    return Kind.RELEASED if pool.get("version") == VERSION else Kind.OURS


def makers(writes: Collection[Write], chroot: str) -> dict[str, Kind]:
    """Who stored each node: node id -> whose launcher. Nodes of others are left out.

    :param writes: as `tests.chaos.transaction_log.read_writes` gives them.
    """
    sessions: dict[int, Kind] = {}
    created: dict[str, int] = {}
    for write in writes:
        path = write.path.removeprefix(chroot)
        if write.kind != "create":
            continue
        if path.startswith(f"{POOLS}/"):
            sessions[write.session] = kind_of(json.loads(write.data))
        elif match := NODE.fullmatch(path):
            created[match[1]] = write.session
    return {node_id: sessions[session] for node_id, session in created.items() if session in sessions}


def faults_of_ours(excesses: Iterable[Excess], made_by: Mapping[str, Kind]) -> list[str]:
    """What ours has made above a limit, a sentence each."""
    found: dict[tuple[str, str], str] = {}
    for excess in excesses:
        for node_id in excess.late():
            if made_by.get(node_id) is Kind.OURS:
                text = f"{excess.when:.1f} s: node {node_id} of ours is above {excess.what}: {sorted(excess.nodes)}"
                found.setdefault((excess.what, node_id), text)
    return list(found.values())


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
