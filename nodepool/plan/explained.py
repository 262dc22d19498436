# SPDX-License-Identifier: Apache-2.0
"""What `nodepool.plan.explain` answers: one class for each kind of subject, and its JSON form.

Times are seconds since the epoch; ages and durations end in ``_seconds``. Codes are values of `ReasonCode`. After the
classes come what an operator can do about a request, and what each pool does about one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from typing import Any, ClassVar, Final

from nodepool.model import states
from nodepool.model.event import short
from nodepool.model.node import Node
from nodepool.model.reasons import NEXT_PASS, Reason, ReasonCode
from nodepool.model.request import NodeRequest
from nodepool.model.status import HostStatus, LimitStatus, PoolStatus
from nodepool.plan.attention import named
from nodepool.plan.observed import Observed, PoolFacts
from nodepool.plan.pool_summary import PoolSummary, newest_limits
from nodepool.plan.queue import RequestKind
from nodepool.plan.request_stage import Stage
from nodepool.plan.triage import Decline, Leave, PoolInfo, screen
from nodepool.quick_dataclass import dataclass

#: What a pool does about a request, the most promising first.
SERVES: Final = "serves"
WAITS: Final = "waits"
#: It launches nothing now, whoever asks.
ABSENT: Final = "absent"
#: It leaves the request to another pool.
LEAVES: Final = "leaves"
DECLINED: Final = "declined"
VERDICTS: Final = (SERVES, WAITS, ABSENT, LEAVES, DECLINED)


@dataclass(frozen=True)
class PoolVerdict:
    """What the pool of a provider does about a request; of its launchers, the one that does most.

    :param pool: ``<provider>/<pool>``. ``launchers``: hosts of those that say so.
    :param verdict: one of `VERDICTS`.
    :param since: when it began to be so for this request, never before it was submitted; None = not known.
    :param ahead: requests that come first in this pool.
    """

    pool: str
    launchers: Sequence[str]
    verdict: str
    code: str
    text: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    since: float | None = None
    ahead: int = 0


@dataclass(frozen=True)
class Moment:
    """What happened, and when."""

    at: float
    what: str
    code: str | None = None
    text: str = ""


@dataclass(frozen=True)
class Explained:
    """The answer about one subject.

    :param text: the whole of it in a sentence.
    :param remedies: what an operator can do, or has to know.
    """

    kind: ClassVar[str] = ""

    id: str
    state: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON object."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class ExplainedRequest(Explained):
    """Of a request.

    :param code: of the pool that is nearest to serving it.
    :param provider: the only one that may serve it; None = any.
    :param ahead: requests that come first in that pool.
    """

    kind: ClassVar[str] = "request"

    labels: Sequence[str] = ()
    provider: str | None = None
    tenant: str | None = None
    job: str | None = None
    pipeline: str | None = None
    requestor: str | None = None
    event_id: str | None = None
    age_seconds: float | None = None
    code: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    ahead: int = 0
    nodes: Sequence[str] = ()
    pools: Sequence[PoolVerdict] = ()
    history: Sequence[Moment] = ()
    remedies: Sequence[str] = ()


@dataclass(frozen=True)
class ExplainedNode(Explained):
    """Of a node.

    :param state_seconds: for how long it is in its state.
    :param request: for which it is, or that uses it.
    :param locked: does somebody hold its lock?
    :param held_by: who keeps it, of a node on hold that an operator holds.
    :param held_until: when launchers delete it, in seconds since the epoch, of a node on hold; None = never.
    :param hold_reason: why it is kept, of a node on hold.
    """

    kind: ClassVar[str] = "node"

    labels: Sequence[str] = ()
    provider: str | None = None
    pool: str | None = None
    launcher: str | None = None
    external_id: Any = None
    age_seconds: float | None = None
    state_seconds: float | None = None
    request: str | None = None
    tenant: str | None = None
    job: str | None = None
    event_id: str | None = None
    locked: bool = False
    held_by: str | None = None
    held_until: float | None = None
    hold_reason: str | None = None
    history: Sequence[Moment] = ()
    remedies: Sequence[str] = ()


@dataclass(frozen=True)
class LabelInPool:
    """A label in the pool of one provider.

    :param code: and ``text``: why it is not served now; None = it is.
    :param nodes: state -> nodes. ``free``: ready ones that nobody has.
    """

    pool: str
    launchers: Sequence[str]
    code: str | None = None
    text: str | None = None
    since: float | None = None
    nodes: Mapping[str, int] = field(default_factory=dict)
    free: int = 0


@dataclass(frozen=True)
class WaitingGroup:
    """Requests that wait in a pool for the same."""

    pool: str
    count: int
    code: str
    text: str
    labels: Sequence[str] = ()
    tenant: str | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    oldest: float | None = None


@dataclass(frozen=True)
class ExplainedLabel(Explained):
    """Of a label.

    :param requests: open ones that want it. ``oldest``: when the one that waits longest was submitted.
    """

    kind: ClassVar[str] = "label"

    requests: int = 0
    oldest: float | None = None
    pools: Sequence[LabelInPool] = ()
    waiting: Sequence[WaitingGroup] = ()
    remedies: Sequence[str] = ()


@dataclass(frozen=True)
class ExplainedProvider(Explained):
    """Of a provider.

    :param nodes: state -> nodes.
    :param pools: what launchers report of them. ``silent``: launchers that report none.
    """

    kind: ClassVar[str] = "provider"

    nodes: Mapping[str, int] = field(default_factory=dict)
    pools: Sequence[PoolSummary] = ()
    silent: Sequence[str] = ()
    waiting: Sequence[WaitingGroup] = ()
    maintenance: Sequence[str] = ()
    history: Sequence[Moment] = ()
    remedies: Sequence[str] = ()


@dataclass(frozen=True)
class ExplainedPool(ExplainedProvider):
    """Of one pool of a provider."""

    kind: ClassVar[str] = "pool"


# What an operator can do about a request that waits or failed, or has to know.

#: Hosts that are named.
MAX_HOSTS: Final = 5

#: Codes of what is missing in a limit of resources, and of requests behind such a one.
_ROOM: Final = (
    *(ReasonCode.ROOM_INSTANCES, ReasonCode.ROOM_CORES, ReasonCode.ROOM_RAM, ReasonCode.ROOM_RESOURCE),
    *(ReasonCode.WAIT_POOL_PAUSED, ReasonCode.ROOM_HIDDEN),
)
#: Codes that an operator ends with a command, and the kind of the subject.
_RESUMED: Final = {
    ReasonCode.PROVIDER_PAUSED.value: "provider",
    ReasonCode.PROVIDER_DRAINING.value: "provider",
    ReasonCode.POOL_PAUSED.value: "pool",
    ReasonCode.POOL_DRAINING.value: "pool",
}


def remedies_of_request(request: NodeRequest, pools: Sequence[PoolVerdict], seen: Observed) -> list[str]:
    """What would help a request.

    :param pools: what each pool does about it, the nearest first.
    """
    if request in seen.unfetched:
        return [fetch_or_delete(request, seen)]
    if not pools or request.state == states.FULFILLED:
        return []
    first = pools[0]
    found = list(_about(request, first, seen))
    for other in pools[1:]:
        if other.verdict == ABSENT and first.verdict in (WAITS, DECLINED):
            found.append(f"{other.pool} would serve it, but: {other.text}")
    for verdict in [one for one in pools if one.verdict == ABSENT]:
        found += _resume(verdict, seen)
    return list(dict.fromkeys(found))


def fetch_or_delete(request: NodeRequest, seen: Observed) -> str:
    """What ends it that the nodes of a request are ready, and are not fetched."""
    who = request.requestor or "the requestor"
    age = short(seen.now - (request.state_time or seen.now))
    return (
        f"{who} has not fetched the nodes for {age}: look whether it works, and whether its executors take jobs; "
        f"nodepool delete {' '.join(request.nodes)} takes the nodes away from the job; "
        "they are free by themselves when its session with ZooKeeper ends"
    )


def _resume(verdict: PoolVerdict, seen: Observed) -> Iterator[str]:
    """Commands that end what keeps a pool from serving."""
    kind = _RESUMED.get(verdict.code)
    if kind is not None:
        name = verdict.pool if kind == "pool" else seen.provider_of(verdict.pool)
        yield f"nodepool resume {kind} {name}"
    elif verdict.code == ReasonCode.BACKING_HELD.value:
        # The text names the records of other providers.
        for record in seen.maintenance:
            if record.text in verdict.text and not record.is_over(seen.now):
                yield f"nodepool resume {record.kind} {record.name}"


def _about(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """What helps in one pool."""
    remedy = _REMEDIES.get(first.code)
    if remedy is not None:
        yield from remedy(request, first, seen)


def _room(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """Who has the room of a pool, or of its provider."""
    yield from _others(first, seen)
    provider = seen.provider_of(first.pool)
    nodes = [node for node in seen.nodes.values() if node.provider == provider]
    held = sorted(node.key for node in nodes if node.state == states.HOLD)
    if held:
        yield f"nodes on hold take room: {named(held)}; nodepool delete {held[0]} frees it"
    allocated = {node.allocated_to for node in nodes}
    other = next((other.key for other in seen.unfetched if other.key in allocated), None)
    if other is not None:
        yield f"nodes of request {other} are ready and not fetched; nodepool explain {other} tells more"
    old = _oldest(node for node in nodes if node.state == states.IN_USE)
    if old is not None:
        yield f"node {old.key} is in use for the longest time; nodepool explain {old.key} tells by whom"
    stuck = sorted(node.key for node in nodes if node.state == states.DELETING and _age(node, seen) > 600)
    if stuck:
        yield f"nodes are being deleted for more than 10 minutes: {named(stuck)}; nodepool explain {stuck[0]} tells why"


def _others(first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """Limits that somebody else uses, too."""
    for limit in limits_of_pool(first.pool, seen):
        if limit.others > 0 and limit.limit is not None and limit.used + limit.others >= 0.9 * limit.limit:
            yield f"others use {limit.others:g} of {limit.limit:g} {limit.resource} of the same {limit.scope} quota"


def _tenant(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    tenant = request.tenant_name
    held = sorted(n.key for n in seen.nodes.values() if n.tenant_name == tenant and n.state == states.HOLD)
    if held:
        yield f"nodes on hold count for tenant {tenant}: {named(held)}; nodepool delete {held[0]} ends that"
    yield f"the limits of tenant {tenant} are in tenant-resource-limits of the configuration"


def _static(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """Hosts of a static pool that could serve a request, and do not."""
    down = [host for host in hosts_of_pool(first.pool, seen) if host.up is False or host.quarantine is not None]
    for host in down[:MAX_HOSTS]:
        if host.quarantine is not None:
            yield f"host {host.name} is quarantined: {host.quarantine}; nodepool release {host.name} ends that"
        else:
            yield f"host {host.name} is down: {host.text}"
    provider = seen.provider_of(first.pool)
    in_use = [n for n in seen.nodes.values() if n.provider == provider and n.state in (states.IN_USE, states.HOLD)]
    old = _oldest(node for node in in_use if set(node.type) & set(request.node_types))
    if old is not None:
        yield f"node {old.key} has its host for the longest time; nodepool explain {old.key} tells for whom"


def _circuit(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    for pool in seen.pools.values():
        if pool.name == first.pool and pool.status is not None and pool.status.next is not None:
            yield f"{first.pool} is tried again in {max(0.0, pool.status.next - seen.now):.0f} s"
            return


def _too_large(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """For a request that needs more than the pool can ever have."""
    more = "add hosts or raise max-parallel-jobs" if first.code == ReasonCode.ROOM_STATIC.value else "raise the limit"
    yield f"ask for fewer nodes in the nodeset, or {more}; all nodes of a request come from one pool"


def _concurrency(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    yield f"max-concurrency of provider {first.pool.partition('/')[0]} says how many launches may run"


def _failed_launch(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    for pool in seen.pools.values():
        error = None if pool.status is None else pool.status.launches.last_error
        if pool.name == first.pool and error is not None:
            yield f"the last launch that failed there, of node {error.node}: {error.text}"
            return


def _silent(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    yield f"search the log of {' or '.join(first.launchers)} for {request.key}"


_Remedy = Callable[[NodeRequest, PoolVerdict, Observed], Iterator[str]]
_REMEDIES: Final[Mapping[str, _Remedy]] = {
    **{code.value: _room for code in _ROOM},
    ReasonCode.ROOM_TENANT.value: _tenant,
    ReasonCode.WAIT_TENANT_ORDER.value: _tenant,
    ReasonCode.WAIT_READY_NODE.value: _static,
    ReasonCode.ROOM_STATIC.value: _too_large,
    ReasonCode.QUOTA_TOO_SMALL.value: _too_large,
    ReasonCode.PROVIDER_CIRCUIT_OPEN.value: _circuit,
    ReasonCode.WAIT_MAX_CONCURRENCY.value: _concurrency,
    ReasonCode.LAUNCH_FAILED.value: _failed_launch,
    ReasonCode.STATUS_MISSING.value: _silent,
    ReasonCode.DECLINED_BEFORE.value: _silent,
    ReasonCode.DRIVER_ERROR.value: _silent,
}


def limits_of_pool(name: str, seen: Observed) -> list[LimitStatus]:
    """Limits of a pool ``<provider>/<pool>``, as they were told last."""
    statuses = [pool.status for pool in seen.pools.values() if pool.name == name and pool.status is not None]
    return newest_limits(limit for status in statuses for limit in status.limits)


def hosts_of_pool(name: str, seen: Observed) -> list[HostStatus]:
    """Hosts of a static pool, each once."""
    found = {
        host.name: host
        for pool in seen.pools.values()
        if pool.name == name and pool.status is not None
        for host in pool.status.hosts
    }
    return list(found.values())


def _oldest(nodes: Iterable[Node]) -> Node | None:
    return min(nodes, key=lambda node: (node.state_time or 0.0, node.key), default=None)


def _age(node: Node, seen: Observed) -> float:
    return 0.0 if node.state_time is None else seen.now - node.state_time


# What each pool does about one request: what it reports, or else what follows from the rules of acceptance.
#
# Launchers of older releases report no status. Of these only the registry and ``declined_by`` are known.

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
