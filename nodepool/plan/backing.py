# SPDX-License-Identifier: Apache-2.0
"""Backing nodes and their slots: who gets which, what must be requested, what is released (rules T).

Last whether a backing node can be made at all now (T-13).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from nodepool.model.reasons import Reason, ReasonCode
from nodepool.model.status import POOL_MARK, Maintenance, MaintenanceRecords, PoolComponent
from nodepool.plan import maintenance

#: What a `Retain` says when only an event can change it.
NEVER_SECONDS: Final = float("inf")


class BackingKind(NamedTuple):
    """What backing nodes of one kind are for: nodes of a label, on nodes of a backing label."""

    label: str
    backing_label: str


@dataclass(frozen=True)
class Rules:
    """What the configuration says about one kind; times in seconds."""

    slots: int
    grace_seconds: float
    min_retention_seconds: float
    max_age_seconds: float | None


@dataclass(frozen=True)
class Backing:
    """One backing node, as it is now.

    :param kind: None = its label is not configured any more.
    :param holders: by slot: the id of the node that has it, None = free.
    :param idle_seconds: how long no one has been on it; None = someone is.
    :param held: has an operator taken out of service where it comes from?
    """

    id: str
    kind: BackingKind | None
    holders: tuple[str | None, ...]
    failed: bool
    age_seconds: float
    idle_seconds: float | None
    held: bool = False


@dataclass(frozen=True)
class Assignment:
    """A node gets a slot."""

    node_id: str
    backing_id: str
    slot: int


@dataclass(frozen=True)
class Retain:
    """Look again after this time."""

    seconds: float


@dataclass(frozen=True)
class Release:
    """Give the backing node back."""

    reason: str


def accepts(backing: Backing, rules: Rules | None) -> bool:
    """May new nodes be put on it? (T-9, T-10, T-11, T-14)"""
    if backing.failed or backing.held or rules is None:
        return False
    return rules.max_age_seconds is None or backing.age_seconds < rules.max_age_seconds


def assign(waiting: Iterable[str], backings: Iterable[Backing], rules: Rules) -> list[Assignment]:
    """Give free slots to waiting nodes of one kind, first come, first served (T-1).

    The fullest backing node is used first, so that the others become empty and can go; of equals the oldest. On each
    the lowest free slot is used first (T-7).

    :param waiting: ids of nodes, in the order in which they came.
    :param backings: of the same kind.
    """
    usable = [backing for backing in backings if accepts(backing, rules)]
    usable.sort(key=lambda backing: (backing.holders.count(None), backing.id))
    free = ((backing.id, slot) for backing in usable for slot in free_slots(backing.holders))
    return [Assignment(node_id, *place) for node_id, place in zip(waiting, free, strict=False)]


def free_slots(holders: Sequence[str | None]) -> list[int]:
    """Lowest first."""
    return [slot for slot, holder in enumerate(holders) if holder is None]


def share(waiting: Mapping[str, str | None], requests: Iterable[str], slots: int) -> tuple[dict[str, str], list[str]]:
    """Which backing request does each waiting node wait for? (T-2)

    A node stays with its request; others fill the requests that have places left, in their order.

    :param waiting: node id -> the request that it waits for already, if any; in the order in which they came.
    :param requests: ids of open requests for backing nodes of this kind, oldest first.
    :param slots: of one backing node.
    :return: node id -> request for those that can share one, and the ids of those for whom one more is needed.
    """
    places_left = dict.fromkeys(requests, slots)
    shares = {node_id: request for node_id, request in waiting.items() if request in places_left}
    for request in shares.values():
        places_left[request] -= 1
    places = (request for request, left in places_left.items() for _ in range(left))
    without = [node_id for node_id in waiting if node_id not in shares]
    shares.update(zip(without, places, strict=False))
    return shares, [node_id for node_id in without if node_id not in shares]


def fate(backing: Backing, rules: Rules | None) -> Retain | Release:
    """Is an empty backing node to be released? (T-8 to T-11)"""
    if backing.idle_seconds is None:
        return Retain(NEVER_SECONDS)
    if backing.failed:
        return Release("it failed")
    if rules is None:
        return Release("its label is not configured any more")
    idle, age = backing.idle_seconds, backing.age_seconds
    waits = [max(rules.grace_seconds - idle, rules.min_retention_seconds - age)]
    if rules.max_age_seconds is not None:
        if age >= rules.max_age_seconds:
            return Release(f"it is {age:.0f} s old, max-age is {rules.max_age_seconds:g} s")
        waits.append(rules.max_age_seconds - age)
    if waits[0] <= 0:
        return Release(f"it has not been used for {idle:.0f} s, grace-time is {rules.grace_seconds:g} s")
    return Retain(min(waits))


# Can a backing node be made now, or has an operator taken out of service all pools that could? (T-13)


def makers_held(
    backing_label: str,
    pools: Iterable[PoolComponent],
    declined_by: Collection[str],
    records: MaintenanceRecords,
    now: float,
) -> list[Maintenance]:
    """The records that keep every pool from making a backing node; empty = one may make it, or none has the label.

    Launchers of older releases do not know the records: a pool that does not say that it is paused goes on.

    :param pools: all registered pools.
    :param declined_by: ids of pools that declined to make such a node.
    :param now: seconds since the epoch.
    """
    of_label = maintenance.of_subject(records, "label", backing_label, now)
    if of_label is not None:
        return [of_label]
    found: list[Maintenance] = []
    for pool in pools:
        if backing_label not in pool.supported_labels or pool.id in declined_by:
            continue
        hosts = (pool.hostname, pool.id.partition(POOL_MARK)[0])
        record = maintenance.of_pool(records, hosts, pool.provider_name, pool.name, now) if pool.paused else None
        if record is None:
            return []
        if record not in found:
            found.append(record)
    return found


def reason(label: str, backing_label: str, records: Sequence[Maintenance]) -> Reason:
    """Why requests for a label wait that needs backing nodes.

    :param records: answer of `makers_held`, not empty.
    """
    numbers = {"since": max(record.since for record in records)}
    ends = [record.until for record in records if record.until is not None]
    if ends:
        numbers["until"] = min(ends)
    why = "; ".join(record.text for record in records)
    text = f"label {label} needs a node of label {backing_label}, which is not made now: {why}"
    return Reason(ReasonCode.BACKING_HELD, text, numbers)
