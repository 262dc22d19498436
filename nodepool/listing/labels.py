# SPDX-License-Identifier: Apache-2.0
"""The overview of labels for pages and API: who serves each, and who wants it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing import styles, times
from nodepool.listing.table import Column, Table
from nodepool.model import states
from nodepool.plan.pool_summary import summarize

if TYPE_CHECKING:
    from nodepool.plan.observed import Observed

SERVED: Final = "served"
NOT_SERVED: Final = "not served"


def label_overview(seen: Observed) -> Table:
    """A row for each label that a pool has or a request wants."""
    columns = (
        Column("Label", "label"),
        Column("State", "state", style=lambda value: styles.GOOD if value == SERVED else styles.BAD),
        Column("Pools", "pools"),
        Column("Nodes", "nodes"),
        Column("Ready", "ready"),
        Column("Waiting", "waiting"),
        Column("Oldest", "oldest", times.since(seen.now), priority=1, moves=True),
        Column("Error", "error", priority=1),
    )
    pools: dict[str, set[str]] = {}
    for pool in seen.pools.values():
        for label in pool.labels:
            pools.setdefault(label, set()).add(pool.name)
    nodes, ready = _nodes(seen)
    waiting, oldest = _waiting(seen)
    broken: dict[str, list[str]] = {}
    for summary in summarize(seen.statuses):
        for label, told in summary.labels.items():
            broken.setdefault(label, []).append(f"{summary.name}: {told.text}")
    rows: list[list[Any]] = []
    for label in sorted({*pools, *waiting, *broken}):
        serving, errors = pools.get(label, set()), broken.get(label, [])
        state = SERVED if len(errors) < len(serving) else NOT_SERVED
        rows.append(
            [
                *(label, state, sorted(serving), nodes[label], ready[label], waiting[label]),
                *(oldest.get(label), "; ".join(errors) or None),
            ]
        )
    return Table(columns, rows)


def _nodes(seen: Observed) -> tuple[Counter[str], Counter[str]]:
    """Label -> nodes, and those that are ready and that nobody has."""
    nodes: Counter[str] = Counter()
    ready: Counter[str] = Counter()
    for node in seen.nodes.values():
        nodes.update(node.type)
        if node.state == states.READY and node.allocated_to is None:
            ready.update(node.type)
    return nodes, ready


def _waiting(seen: Observed) -> tuple[Counter[str], dict[str, float]]:
    """Label -> requests that wait for it, and when the first of them was submitted."""
    waiting: Counter[str] = Counter()
    oldest: dict[str, float] = {}
    for request in seen.waiting:
        for label in set(request.node_types):
            waiting[label] += 1
            oldest[label] = min(oldest.get(label, seen.now), request.created_time or seen.now)
    return waiting, oldest
