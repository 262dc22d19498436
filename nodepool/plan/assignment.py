# SPDX-License-Identifier: Apache-2.0
"""May this pool serve a kind of request? (rules A-2 to A-6, A-15)"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from nodepool.model import states
from nodepool.plan.queue import RequestKind


@dataclass(frozen=True)
class PoolInfo:
    """One registered pool, as others see it."""

    id: str
    provider_name: str
    labels: frozenset[str]
    priority: int
    paused: bool
    name: str = ""

    def supports(self, labels: Collection[str]) -> bool:
        return self.labels.issuperset(labels)


@dataclass(frozen=True)
class Consider:
    """The pool may take such a request, if it has the means."""


@dataclass(frozen=True)
class Leave:
    """Not now, or not for us."""

    reason: str


@dataclass(frozen=True)
class Decline:
    """The pool must refuse such a request, so that it can fail when everybody has."""

    reason: str


Verdict = Consider | Leave | Decline


def screen(kind: RequestKind, me: PoolInfo, registered: Iterable[PoolInfo], absent: Iterable[PoolInfo] = ()) -> Verdict:
    """Judge a kind of request.

    :param me: this pool.
    :param registered: all registered pools, this one included.
    :param absent: pools that went a moment ago and may come back.
    """
    if me.id in kind.declined_by:
        return Leave("declined by this pool before")
    able = [
        pool
        for pool in registered
        if pool.id != me.id and pool.id not in kind.declined_by and pool.supports(kind.labels)
    ]
    if kind.provider and kind.provider != me.provider_name:
        for pool in able:
            if pool.provider_name == kind.provider:
                return Leave(f"wants provider {kind.provider}, which can serve it")
    for pool in able:
        if kind.provider == me.provider_name and pool.provider_name != me.provider_name:
            # It leaves the request to the provider that is asked for: if we left it too, it would wait for ever.
            continue
        if pool.priority < me.priority and not pool.paused:
            return Leave(f"pool {pool.id} has a better priority")
    missing = sorted(set(kind.labels) - me.labels)
    if not missing:
        return Consider()
    if able:
        return Leave(f"label {missing[0]} is not here, but pool {able[0].id} has it")
    awaited = may_come_back(kind.labels, kind.declined_by, absent)
    if awaited is not None:
        return Leave(f"label {missing[0]} is not here, but pool {awaited.id}, which went a moment ago, had it")
    return Decline(f"label(s) {', '.join(missing)} not available in this pool")


def may_come_back(labels: Collection[str], declined_by: Collection[str], absent: Iterable[PoolInfo]) -> PoolInfo | None:
    """A pool that went a moment ago and could serve a request with these labels; None = there is none."""
    return next((pool for pool in absent if pool.id not in declined_by and pool.supports(labels)), None)


def declined_state(
    labels: Collection[str],
    declined_by: Collection[str],
    registered_ids: Collection[str],
    absent: Iterable[PoolInfo] = (),
) -> str:
    """State of a request after a pool declined it (A-15).

    :param absent: pools that went a moment ago. For one that could serve it the request waits; it fails when they are
        given up (`nodepool.launcher.cleanup_worker`).
    """
    if set(registered_ids) <= set(declined_by) and may_come_back(labels, declined_by, absent) is None:
        return states.FAILED
    return states.REQUESTED
