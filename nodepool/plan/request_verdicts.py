# SPDX-License-Identifier: Apache-2.0
"""What each pool does about one request: what it reports, or else what follows from the rules of acceptance.

Launchers of older releases report no status. Of these only the registry and ``declined_by`` are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from nodepool.model import states
from nodepool.model.pool_status import PoolStatus
from nodepool.model.reasons import NEXT_PASS, Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.plan.assignment import Decline, Leave, PoolInfo, screen
from nodepool.plan.explained import ABSENT, DECLINED, LEAVES, SERVES, VERDICTS, WAITS, PoolVerdict
from nodepool.plan.observed import Observed, PoolFacts
from nodepool.plan.queue import RequestKind
from nodepool.plan.request_stage import Stage

#: Stages of requests that wait, although the pool has something to do with them.
_WAITING_STAGES: Final = frozenset({Stage.WAITING.value, Stage.DEFERRED.value, Stage.PAUSED.value})
#: First parts of codes: the provider, the pool or its launcher takes nothing, whoever asks.
_ABSENT_CODES: Final = frozenset(
    {
        *("provider.circuit-open", "provider.paused", "provider.draining", "provider.starting"),
        *("pool.paused", "pool.draining", "label.paused", "launcher.paused", "launcher.draining"),
        "backing.held",
    }
)
#: Of reasons to decline, those that say the least.
_DULL: Final = (ReasonCode.DECLINED_BEFORE.value, ReasonCode.LABEL_UNKNOWN.value)


class RequestsAhead:
    """How many requests come before one, in any pool."""

    def __init__(self, request: NodeRequest, others: Iterable[NodeRequest]) -> None:
        key = request.order_key
        self._waiting: Counter[tuple[frozenset[str], frozenset[str]]] = Counter()
        self._pending: dict[str, NodeRequest] = {}
        for other in others:
            if other.order_key >= key:
                continue
            if other.state == states.REQUESTED:
                self._waiting[frozenset(other.node_types), frozenset(other.declined_by)] += 1
            elif other.state == states.PENDING:
                self._pending[other.key] = other

    def count(self, pool: PoolFacts) -> int:
        """In a pool: those that it could serve, and those that it has locked and that wait for room."""
        found = sum(
            count
            for (labels, declined_by), count in self._waiting.items()
            if pool.id not in declined_by and pool.labels.issuperset(labels)
        )
        told = () if pool.status is None else pool.status.requests
        return found + sum(one.stage == Stage.PAUSED.value and one.id in self._pending for one in told)


def verdicts(request: NodeRequest, seen: Observed) -> list[PoolVerdict]:
    """One for each pool that could serve a request, or has declined it; the most promising first."""
    kind = RequestKind.of(request)
    infos = [pool.info for pool in seen.pools.values() if pool.component is not None]
    ahead = RequestsAhead(request, seen.requests.values())
    found: dict[str, list[PoolVerdict]] = {}
    pools = [*seen.pools.values(), *_gone(request, seen)]
    for pool in pools:
        told = _of_pool(request, kind, pool, infos, seen)
        if told is not None:
            count = ahead.count(pool) if told.verdict == WAITS else 0
            found.setdefault(pool.name, []).append(replace(told, ahead=count, since=in_its_life(request, told.since)))
    return sorted((_joined(same) for same in found.values()), key=rank)


def in_its_life(request: NodeRequest, at: float | None) -> float | None:
    """When a request met what began at a time; None = not known.

    A state of a provider, what the requests of a kind wait for, and a node that was ready may be older than the
    request: it met them when it was submitted.

    :param at: seconds since the epoch.
    """
    return None if at is None or request.created_time is None else max(at, request.created_time)


def rank(verdict: PoolVerdict) -> tuple[int, bool, bool, int, str]:
    """Orders verdicts: the most promising and most telling first."""
    room = verdict.code.startswith("room.")
    return (VERDICTS.index(verdict.verdict), verdict.code in _DULL, not room, verdict.ahead, verdict.pool)


def _joined(same: Sequence[PoolVerdict]) -> PoolVerdict:
    """The pools of one name at several launchers: the one that does most, and who says the same."""
    best = min(same, key=rank)
    hosts = [host for one in same if (one.verdict, one.code) == (best.verdict, best.code) for host in one.launchers]
    return replace(best, launchers=sorted(set(hosts)))


def _gone(request: NodeRequest, seen: Observed) -> list[PoolFacts]:
    """Pools that declined it and are not there any more."""
    return [PoolFacts(pool_id, None, None) for pool_id in request.declined_by if pool_id not in seen.pools]


def _of_pool(
    request: NodeRequest, kind: RequestKind, pool: PoolFacts, infos: Sequence[PoolInfo], seen: Observed
) -> PoolVerdict | None:
    """None = the pool has nothing to do with it."""
    status = pool.status
    for told in () if status is None else status.requests:
        if told.id == request.key:
            reason = _Told(told.code, told.text, told.numbers, told.since)
            return reason.verdict(pool, WAITS if told.stage in _WAITING_STAGES else SERVES)
    if pool.id in request.declined_by:
        return _declined(request, pool)
    if request.state == states.REQUESTED:
        return _of_waiting(kind, pool, infos)
    if request.state == states.PENDING:
        return _of_pending(request, pool, seen)
    return None


def _of_waiting(kind: RequestKind, pool: PoolFacts, infos: Sequence[PoolInfo]) -> PoolVerdict | None:
    """Of a request that the pool may still take."""
    status = pool.status
    told = None if status is None else _of_kind(kind, status)
    if told is not None:
        return told.verdict(pool, _verdict_of(told.code))
    if not pool.labels.issuperset(kind.labels):
        return None
    if status is not None and status.state in ("unavailable", "maintenance", "starting"):
        code = status.code or ReasonCode.PROVIDER_STARTING.value
        return _Told(code, status.text or "the provider is not started yet", {}, status.since).verdict(pool, ABSENT)
    screened = screen(kind, pool.info, infos)
    if isinstance(screened, Leave):
        return _of_reason(screened.reason).verdict(pool, LEAVES)
    if isinstance(screened, Decline):
        return _of_reason(screened.reason).verdict(pool, DECLINED)
    if status is not None:
        for label in kind.labels:
            if label in status.labels:
                broken = status.labels[label]
                return _Told(broken.code, broken.text, {}, broken.since).verdict(pool, DECLINED)
        if not status.omitted:
            return _of_reason(NEXT_PASS).verdict(pool, WAITS)
    return _Told(ReasonCode.STATUS_MISSING.value, _silence(pool)).verdict(pool, WAITS)


def _of_pending(request: NodeRequest, pool: PoolFacts, seen: Observed) -> PoolVerdict | None:
    """Of a request that some launcher has locked, and that no status has: its nodes tell where."""
    nodes = [node for node in seen.allocated_to(request).values() if node.launcher == pool.id]
    if not nodes:
        return None
    count = f"{len(nodes)} of {len(request.node_types)} nodes"
    since = min((node.created_time for node in nodes if node.created_time is not None), default=None)
    reason = _Told(ReasonCode.SERVED_LAUNCHING.value, f"{count} are there or are being launched", {}, since)
    return reason.verdict(pool, SERVES)


def _declined(request: NodeRequest, pool: PoolFacts) -> PoolVerdict:
    for told in () if pool.status is None else reversed(pool.status.declined):
        if told.id == request.key:
            return _Told(told.code, told.text, told.numbers, told.since).verdict(pool, DECLINED)
    if pool.status is not None:
        text = "it declined the request some time ago; the log of the launcher has the reason"
    elif pool.component is not None:
        text = f"it declined the request; {_silence(pool)}"
    else:
        text = f"it declined the request, and is not registered any more; the log of {pool.host} has the reason"
    missing = sorted(set(request.node_types) - pool.labels) if pool.component is not None else []
    if missing:
        text = f"label(s) {', '.join(missing)} not available in this pool"
        return _Told(ReasonCode.LABEL_UNKNOWN.value, text).verdict(pool, DECLINED)
    return _Told(ReasonCode.DECLINED_BEFORE.value, text).verdict(pool, DECLINED)


def _silence(pool: PoolFacts) -> str:
    """Why a pool says nothing of the request."""
    if pool.status is not None:
        return f"the status record of launcher {pool.host} has no room for all requests; its log has the reason"
    paused = "another request waits for room there; " if pool.info.paused else ""
    return f"{paused}launcher {pool.host} ({pool.version}) tells no status; its log may have the reason"


def _of_kind(kind: RequestKind, status: PoolStatus) -> _Told | None:
    """What a pool tells of the requests of a kind."""
    labels = list(kind.labels)
    same = [
        told
        for told in status.waiting
        if list(told.labels) == labels
        and (told.provider, told.tenant, told.min_ready) == (kind.provider, kind.tenant_name, kind.min_ready)
    ]
    # Another pool may have declined it since then: what is told of its like is near enough.
    told = min(same, key=lambda told: told.mark != kind.mark, default=None)
    return None if told is None else _Told(told.code, told.text, told.numbers, told.since)


def _verdict_of(code: str) -> str:
    if code in _ABSENT_CODES:
        return ABSENT
    return LEAVES if code.startswith("turn.") else WAITS


def _of_reason(reason: Reason) -> _Told:
    return _Told(reason.code.value, reason.text, reason.numbers)


class _Told:
    """A reason as it is stored."""

    def __init__(
        self, code: str, text: str, numbers: Mapping[str, float] | None = None, since: float | None = None
    ) -> None:
        self.code = code
        self.text = text
        self.numbers = dict(numbers or {})
        self.since = since or None

    def verdict(self, pool: PoolFacts, verdict: str) -> PoolVerdict:
        """The same as what a pool does about a request."""
        return PoolVerdict(pool.name, [pool.host], verdict, self.code, self.text, self.numbers, self.since)
