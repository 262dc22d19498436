# SPDX-License-Identifier: Apache-2.0
"""Who serves a label, and what do its requests wait for? See `nodepool.plan.explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from nodepool.model import states
from nodepool.model.event import Event, What
from nodepool.model.near_words import did_you_mean
from nodepool.model.node import Node
from nodepool.model.pool_status import PoolStatus, WaitingStatus
from nodepool.model.reasons import ReasonCode
from nodepool.plan.attention import named
from nodepool.plan.explained import ExplainedLabel, LabelInPool, WaitingGroup
from nodepool.plan.observed import Observed, PoolFacts

#: A request for a ready node that failed this long ago says nothing any more. While they fail there is one every few
#: seconds.
RECENT_SECONDS: Final = 120.0


def explain_label(label: str, seen: Observed) -> ExplainedLabel:
    """Which pools serve a label, which do not now and why, and what its requests wait for."""
    wanted = [request for request in seen.waiting if label in request.node_types]
    pools = _pools(label, seen)
    waiting = waiting_groups(seen, lambda _, one: label in one.labels and not one.min_ready)
    working = [pool for pool in pools if pool.code is None]
    return ExplainedLabel(
        id=label,
        state="served" if working else "not served",
        text=_text(label, pools, len(wanted), waiting, seen),
        requests=len(wanted),
        oldest=min((request.created_time for request in wanted if request.created_time is not None), default=None),
        pools=pools,
        waiting=waiting,
        remedies=[] if working else [one.text for one in pools if one.text],
    )


def _pools(label: str, seen: Observed) -> list[LabelInPool]:
    by_name: dict[str, list[PoolFacts]] = {}
    for pool in seen.pools.values():
        broken = pool.status is not None and label in pool.status.labels
        if label in pool.labels or broken:
            by_name.setdefault(pool.name, []).append(pool)
    nodes: dict[str, list[Node]] = {}
    for node in seen.nodes.values():
        if label in node.type:
            nodes.setdefault(f"{node.provider}/{node.pool}", []).append(node)
    return [_pool(label, name, same, nodes.get(name, ()), seen) for name, same in sorted(by_name.items())]


def _pool(label: str, name: str, same: Sequence[PoolFacts], nodes: Sequence[Node], seen: Observed) -> LabelInPool:
    code, text, since = next((found for pool in same if (found := _trouble(label, pool, seen))[0]), (None, None, None))
    return LabelInPool(
        name,
        sorted({pool.host for pool in same}),
        code,
        text,
        since,
        dict(Counter(node.state for node in sorted(nodes, key=lambda node: node.state))),
        sum(_is_free(node) for node in nodes),
    )


def _is_free(node: Node) -> bool:
    return node.state == states.READY and node.allocated_to is None


def _trouble(label: str, pool: PoolFacts, seen: Observed) -> tuple[str | None, str | None, float | None]:
    """Code, text and time of what keeps a pool from serving a label."""
    for record in seen.maintenance_of([("label", label)]):
        return ReasonCode.LABEL_PAUSED.value, record.text, record.since
    status = pool.status
    if status is None:
        return None, None, None
    broken = status.labels.get(label)
    if broken is not None:
        return broken.code, broken.text, broken.since
    if status.state in ("unavailable", "maintenance"):
        return status.code or ReasonCode.PROVIDER_STARTING.value, status.text, status.since
    # Only requests that wait for it tell of it.
    for told in status.waiting:
        if told.code == ReasonCode.BACKING_HELD.value and set(told.labels) == {label}:
            return told.code, told.text, told.since
    return None, None, None


def _text(
    label: str, pools: Sequence[LabelInPool], wanted: int, waiting: Sequence[WaitingGroup], seen: Observed
) -> str:
    if not pools:
        hint = did_you_mean(label, seen.labels)
        return f"no registered pool has it{hint}"
    serving = [pool.pool for pool in pools if pool.code is None]
    free = sum(pool.free for pool in pools)
    head = f"is served by {named(serving)}" if serving else f"is not served now by {named([one.pool for one in pools])}"
    count = "1 request wants it" if wanted == 1 else f"{wanted} requests want it"
    why = f"; most wait in {waiting[0].pool}: {waiting[0].text}" if waiting else ""
    return f"{head}; {free} free node{'' if free == 1 else 's'}; {count}{why}{_min_ready(label, seen)}"


def _min_ready(label: str, seen: Observed) -> str:
    """What ready nodes of the label that are missing wait for, or why the last request for one failed."""
    waiting = waiting_groups(seen, lambda _, one: label in one.labels and one.min_ready)
    if waiting:
        first = waiting[0]
        missing = "1 more ready node waits" if first.count == 1 else f"{first.count} more ready nodes wait"
        return f"; min-ready: {missing} in {first.pool}: {first.text}"
    failed = _min_ready_failure(label, seen)
    return "" if failed is None else f"; min-ready: {failed.text}"


def _min_ready_failure(label: str, seen: Observed) -> Event | None:
    """The last request for a ready node of the label that failed, if that was not long ago: they are tried again."""
    failures = (
        event
        for event in seen.events
        if event.subject == f"label {label}"
        and event.what == What.FAILED.value
        and event.at > seen.now - RECENT_SECONDS
    )
    return max(failures, key=lambda event: event.at, default=None)


def waiting_groups(seen: Observed, wanted: Callable[[PoolStatus, WaitingStatus], bool]) -> list[WaitingGroup]:
    """What requests wait for, as pools tell it; most requests first.

    All launchers of a pool have the same queue: the one with the longest is taken.
    """
    found: dict[str, list[WaitingGroup]] = {}
    for status in seen.statuses:
        name = f"{status.provider}/{status.pool}"
        groups = [_group(name, one) for one in status.waiting if wanted(status, one) and _waits_here(one.code)]
        if sum(group.count for group in groups) > sum(group.count for group in found.get(name, ())):
            found[name] = groups
    return sorted(_flat(found.values()), key=lambda group: (-group.count, group.pool, group.code))


def _waits_here(code: str) -> bool:
    """Not one that the pool leaves to others."""
    return not code.startswith(("turn.", "declined."))


def _group(name: str, one: WaitingStatus) -> WaitingGroup:
    return WaitingGroup(
        name, one.count, one.code, one.text, list(one.labels), one.tenant, dict(one.numbers), one.oldest
    )


def _flat(groups: Iterable[Sequence[WaitingGroup]]) -> list[WaitingGroup]:
    return [group for same in groups for group in same]
