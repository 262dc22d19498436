# SPDX-License-Identifier: Apache-2.0
"""What the launchers that serve a pool report of it, combined: for listings and pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from nodepool.model.event import grouped
from nodepool.model.reasons import ReasonCode
from nodepool.model.status import HostStatus, LabelStatus, LaunchesStatus, LaunchStatus, LimitStatus, PoolStatus

#: States of pools, the one that needs attention most first.
STATES: Final = ("unavailable", "drained", "paused", "full", "starting", "running")
#: What people read of records that call it otherwise: a request waits for room, which is no fault of anybody.
_WORDS: Final = {"paused": "full"}
#: Scopes of limits that are the same for all pools of a provider.
_OF_PROVIDER: Final = ("provider", "cloud")
#: Resources of which each node takes one.
_NODES: Final = ("instances", "slots")
#: What a summary has of the launcher that reports the worst state.
_OF_THE_WORST: Final = ("provider", "pool", "driver", "since", "code", "text", "next")

K = TypeVar("K")
Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class PoolSummary:
    """One pool of a provider.

    :param state: one of `STATES`: ``full`` as long as a request waits for room, ``paused`` or ``drained`` by an
        operator.
    :param launchers: hosts of those that serve it, sorted.
    :param affected: how many of them are in the state ``state``, which is the worst.
    :param since: when that began, and ``next``: when it is tried again, in seconds since the epoch.
    :param labels: those that cannot be served.
    :param waiting: requests that wait for room or their turn in it.
    :param launching: launches that have been in their step for a while.
    :param slow_calls: questions to the cloud that take long -> how long, in seconds.
    :param failing_calls: questions to the cloud that failed several times in a row -> the last error.
    :param missing: nodes that may be lost, or in another place -> when they count as lost, in seconds since the epoch.
    :param other_installations: other installation -> things that it has in the cloud for a provider of the same name.
    """

    provider: str
    pool: str
    driver: str = ""
    state: str = "starting"
    since: float = 0.0
    code: str | None = None
    text: str | None = None
    next: float | None = None
    launchers: Sequence[str] = ()
    affected: int = 0
    limits: Sequence[LimitStatus] = ()
    labels: Mapping[str, LabelStatus] = field(default_factory=dict)
    waiting: int = 0
    launches: LaunchesStatus = field(default_factory=LaunchesStatus)
    launching: Sequence[LaunchStatus] = ()
    hosts: Sequence[HostStatus] = ()
    slow_calls: Mapping[str, float] = field(default_factory=dict)
    failing_calls: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, float] = field(default_factory=dict)
    other_installations: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.pool}"


def summarize(pools: Iterable[PoolStatus]) -> list[PoolSummary]:
    """One summary for each pool, by name.

    :param pools: the records of all launchers.
    """
    by_name = grouped(pools, lambda pool: (pool.provider, pool.pool))
    return [_summary(by_name[name]) for name in sorted(by_name)]


def _summary(records: Sequence[PoolStatus]) -> PoolSummary:
    worst = min(records, key=lambda record: (_rank(state_of(record)), record.since))
    return PoolSummary(
        **{name: getattr(worst, name) for name in _OF_THE_WORST},
        state=state_of(worst),
        launchers=sorted({record.host for record in records}),
        affected=sum(state_of(record) == state_of(worst) for record in records),
        limits=newest_limits(limit for record in records for limit in record.limits),
        labels={name: label for record in records for name, label in sorted(record.labels.items())},
        waiting=_waiting(records),
        launches=_launches([record.launches for record in records]),
        launching=[launch for record in records for launch in record.launching],
        hosts=_hosts(records),
        slow_calls=largest(record.slow_calls for record in records),
        failing_calls={hook: error for record in records for hook, error in record.failing_calls.items()},
        missing={node: when for record in records for node, when in record.missing.items()},
        other_installations=largest(record.other_installations for record in records),
    )


def state_of(record: PoolStatus) -> str:
    """The state of a pool in the words of listings and pages."""
    if record.state == "maintenance":
        return "drained" if (record.code or "").endswith("draining") else "paused"
    return _WORDS.get(record.state, record.state)


def largest(found: Iterable[Mapping[str, Number]]) -> dict[str, Number]:
    """Key -> the largest of its values. All launchers ask the same cloud, and see the same things in it."""
    most: dict[str, Number] = {}
    for one in found:
        most.update({what: max(value, most.get(what, value)) for what, value in one.items()})
    return most


def _waiting(records: Sequence[PoolStatus]) -> int:
    """Requests that wait for the pool: in its queue, which all launchers share, and those that pause a launcher."""
    from nodepool.plan.triage import Stage

    # What another pool serves is in the queue, too.
    queued = max(
        sum(kind.count for kind in record.waiting if kind.code != ReasonCode.TURN_OF_LABEL.value and not kind.min_ready)
        for record in records
    )
    return queued + len({one.id for record in records for one in record.requests if one.stage == Stage.PAUSED.value})


def _rank(state: str) -> int:
    return STATES.index(state) if state in STATES else len(STATES)


def _launches(found: Sequence[LaunchesStatus]) -> LaunchesStatus:
    errors = [launches.last_error for launches in found if launches.last_error is not None]
    return LaunchesStatus(
        sum(launches.running for launches in found),
        sum(launches.ok_15m for launches in found),
        sum(launches.failed_15m for launches in found),
        max(errors, key=lambda error: error.at, default=None),
    )


def _hosts(records: Sequence[PoolStatus]) -> list[HostStatus]:
    """Each host once. One that any launcher cannot reach is down, and the text says for whom."""
    hosts = ((record.host, host) for record in records for host in record.hosts)
    by_name = grouped(hosts, lambda entry: entry[1].name)
    return [_host(by_name[name]) for name in sorted(by_name)]


def _host(found: Sequence[tuple[str, HostStatus]]) -> HostStatus:
    launcher, worst = min(found, key=lambda entry: (_trouble(entry[1]), entry[1].since))
    told_by_all = all(_trouble(host) == _trouble(worst) for _, host in found)
    nodes = sorted({node for _, host in found for node in host.nodes})
    text = worst.text if told_by_all or not worst.text else f"for launcher {launcher}: {worst.text}"
    return replace(worst, text=text, nodes=nodes)


def _trouble(host: HostStatus) -> int:
    """0 = most."""
    if host.quarantine is not None:
        return 0
    return {False: 1, None: 2, True: 3}[host.up]


def newest_limits(limits: Iterable[LimitStatus]) -> list[LimitStatus]:
    """Each limit once, as it was reported last; in the order in which they come."""
    return list(newest(((limit.scope, limit.resource), limit) for limit in limits).values())


def newest(limits: Iterable[tuple[K, LimitStatus]]) -> dict[K, LimitStatus]:
    """Of the limits with the same key the one that was reported last."""
    found: dict[K, LimitStatus] = {}
    for key, limit in limits:
        if key not in found or (limit.asked_at or 0.0) > (found[key].asked_at or 0.0):
            found[key] = limit
    return found


def free(limit: LimitStatus) -> float | None:
    """What is left of a limit; None = there is no limit."""
    if limit.limit is None or not math.isfinite(limit.limit):
        return None
    return max(0.0, limit.limit - limit.used - limit.others)


def fullness(limit: LimitStatus) -> float:
    """Which part of a limit is used, 0 to 1; 0 where there is none."""
    left = free(limit)
    if left is None or limit.limit is None:
        return 0.0
    return 1.0 - left / limit.limit if limit.limit > 0 else 1.0


def limiting(limits: Iterable[LimitStatus]) -> LimitStatus | None:
    """The limit of which most is used; None = there is none.

    How many launches may run at a time is no room, and limits of tenants are not those of all requests.
    """
    room = [limit for limit in limits if _is_room(limit)]
    # Of two that are used alike, the one that is counted in nodes says more.
    return max(room, key=lambda limit: (fullness(limit), limit.resource in _NODES), default=None)


def _is_room(limit: LimitStatus) -> bool:
    return limit.resource != "launches" and not limit.scope.startswith("tenant:") and free(limit) is not None


def capacity(pools: Sequence[PoolSummary], nodes: Mapping[str, int]) -> tuple[float, str] | None:
    """For how many nodes there is room in a provider, and the resource whose limit binds; None = no limit is known.

    Another limit than that of nodes is worked out from what the present nodes use of it.

    :param pools: all of the provider. ``nodes``: pool -> its nodes.
    """
    own = [_least(pool.limits, nodes.get(pool.pool, 0), shared=False) for pool in pools]
    limits = newest_limits(limit for pool in pools for limit in pool.limits)
    found = [_least(limits, sum(nodes.values()), shared=True)]
    if own and None not in own:
        each = [one for one in own if one is not None]
        found.append((sum(room for room, _ in each), max(each)[1]))
    return min((one for one in found if one is not None), default=None)


def _least(limits: Iterable[LimitStatus], nodes: int, *, shared: bool) -> tuple[float, str] | None:
    """The limit with the least room. Arguments as for `_in_nodes`."""
    return min(filter(None, (_in_nodes(limit, nodes, shared=shared) for limit in limits)), default=None)


def _in_nodes(limit: LimitStatus, nodes: int, *, shared: bool) -> tuple[float, str] | None:
    """A limit as a number of nodes like those that are there; None = that is not known, or it is no such limit.

    :param shared: is a limit of the whole provider wanted, or one of a pool?
    """
    if not _is_room(limit) or (limit.scope in _OF_PROVIDER) != shared:
        return None
    room = max(0.0, (limit.limit or 0.0) - limit.others)
    if limit.resource not in _NODES:
        if not nodes or limit.used <= 0:
            return None
        room = round(nodes * room / limit.used, 1)
    return room, limit.resource


def by_provider(pools: Iterable[PoolSummary]) -> dict[str, list[PoolSummary]]:
    """Provider -> its pools."""
    return grouped(pools, lambda pool: pool.provider)


def limit_owner(pool: PoolSummary, limit: LimitStatus) -> str:
    """Whose limit it is: the pool, its provider, or a tenant."""
    if limit.scope in _OF_PROVIDER:
        return pool.provider
    return limit.scope.removeprefix("tenant:") if limit.scope.startswith("tenant:") else pool.name
