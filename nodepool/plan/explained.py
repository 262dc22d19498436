# SPDX-License-Identifier: Apache-2.0
"""What `nodepool.plan.explain` answers: one class for each kind of subject, and its JSON form.

Times are seconds since the epoch; ages and durations end in ``_seconds``. Codes are values of `ReasonCode`. After the
classes come what an operator can do about a request, what each pool does about one, and the answer about an image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Final

from nodepool.model import states
from nodepool.model.event import counted, named, short
from nodepool.model.image import BuildView, ImageView
from nodepool.model.node import Node
from nodepool.model.reasons import NEXT_PASS, SEVERAL_POOLS, ReasonCode
from nodepool.model.request import NodeRequest, parent_of
from nodepool.model.status import CandidateStatus, PoolStatus, RequestStatus, WaitingStatus
from nodepool.plan.observed import Observed, PoolFacts, image_of
from nodepool.plan.pool_summary import PoolSummary, newest_limits
from nodepool.plan.shares import served_before
from nodepool.plan.triage import Consider, Leave, PoolInfo, RequestKind, Stage, judge

#: What a pool does about a request, the most promising first.
SERVES: Final = "serves"
WAITS: Final = "waits"
#: It launches nothing now, no matter who asks.
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
    :param locked: does someone hold its lock?
    :param held_by: who keeps it, of a node on hold that an operator holds.
    :param held_until: when launchers delete it, in seconds since the epoch, of a node on hold; None = never.
    :param hold_reason: why it is kept, of a node on hold.
    :param console: the end of the console of an attempt that failed; None = there is none, or the client of the API is
        no operator.
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
    console: str | None = None
    history: Sequence[Moment] = ()
    remedies: Sequence[str] = ()


@dataclass(frozen=True)
class LabelInPool:
    """A label in the pool of one provider.

    :param code: and ``text``: why it is not served now; None = it is.
    :param nodes: state -> nodes. ``free``: ready ones that no one has.
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


@dataclass(frozen=True)
class ExplainedThing(Explained):
    """Of a host, an image, a launcher or a tenant.

    :param what: which of them it is.
    :param facts: what more is known, by name. ``since``: when its state began.
    :param nodes: the first ones: id, state, since, and what is done with each. ``places``: the same of an image, by
        provider.
    """

    what: str = ""
    since: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    places: Sequence[Mapping[str, Any]] = ()
    nodes: Sequence[Mapping[str, Any]] = ()
    waiting: Sequence[WaitingGroup] = ()
    history: Sequence[Moment] = ()
    remedies: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        data = super().to_dict()
        return {**data, "kind": data.pop("what")}


# What an operator can do about a request that waits or failed, or has to know.

#: Hosts that are named.
MAX_HOSTS: Final = 5


def remedies_of_request(request: NodeRequest, pools: Sequence[PoolVerdict], seen: Observed) -> list[str]:
    """What would help a request.

    :param pools: what each pool does about it, the nearest first.
    """
    if request in seen.unfetched:
        return [fetch_or_delete(request, seen)]
    if not pools or request.state == states.FULFILLED:
        return []
    first = pools[0]
    found: list[str] = []
    if first.code in SENTENCES:
        logs, provider = " or ".join(first.launchers), seen.provider_of(first.pool)
        found.append(SENTENCES[first.code].format(logs=logs, provider=provider, request=request.key))
    if first.code in REMEDIES:
        found += REMEDIES[first.code](request, first, seen)
    absent = [one for one in pools if one.verdict == ABSENT]
    if first.verdict in (WAITS, DECLINED):
        found += [f"{other.pool} would serve it, but: {other.text}" for other in absent]
    if first.verdict == WAITS:
        statuses = _statuses(first, seen)
        launches = any(launch.slow for status in statuses for launch in status.launching)
        if launches or any(status.slow_calls for status in statuses):
            what = "launches" if launches else "calls"
            found.append(f"{what} of {first.pool} take long; nodepool explain {first.pool} shows which")
    for verdict in absent:
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
    kind, _, what = verdict.code.partition(".")
    if kind in ("provider", "pool") and what in ("paused", "draining"):
        yield f"nodepool resume {kind} {verdict.pool if kind == 'pool' else seen.provider_of(verdict.pool)}"
    elif verdict.code == ReasonCode.BACKING_HELD.value:
        # The text names the records of other providers.
        for record in seen.maintenance:
            if record.text in verdict.text and not record.is_over(seen.now):
                yield f"nodepool resume {record.kind} {record.name}"


def _room(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """Who has the room of a pool, or of its provider."""
    for limit in newest_limits(limit for status in _statuses(first, seen) for limit in status.limits):
        if limit.others > 0 and limit.limit is not None and limit.used + limit.others >= 0.9 * limit.limit:
            yield f"others use {limit.others:g} of {limit.limit:g} {limit.resource} of the same {limit.scope} quota"
    nodes = _nodes(first, seen)
    held = sorted(node.key for node in nodes if node.state == states.HOLD)
    if held:
        yield f"nodes on hold take room: {named(held)}; nodepool delete {held[0]} frees it"
    allocated = {node.allocated_to for node in nodes}
    other = next((other.key for other in seen.unfetched if other.key in allocated), None)
    if other is not None:
        yield f"nodes of request {other} are ready and not fetched; nodepool explain {other} tells more"
    old = _oldest(node for node in nodes if node.state == states.IN_USE)
    if old is not None:
        yield f"node {old.key} is in use for the longest time; nodepool explain {old.key} shows by whom"
    deleting = [node for node in nodes if node.state == states.DELETING and node.state_time is not None]
    stuck = sorted(node.key for node in deleting if seen.now - (node.state_time or 0.0) > 600)
    if stuck:
        yield f"nodes are being deleted for more than 10 minutes: {named(stuck)}; nodepool explain {stuck[0]} shows why"


def _tenant(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    return remedies_of_tenant(request.tenant_name or "", seen)


def remedies_of_tenant(tenant: str, seen: Observed) -> Iterator[str]:
    """What would help a tenant whose limit is reached."""
    held = sorted(n.key for n in seen.nodes.values() if n.tenant_name == tenant and n.state == states.HOLD)
    if held:
        yield f"nodes on hold count for tenant {tenant}: {named(held)}; nodepool delete {held[0]} ends that"
    yield f"the limits of tenant {tenant} are in tenant-resource-limits of the configuration"


def _static(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    """Hosts of a static pool that could serve a request, and do not."""
    hosts = {host.name: host for status in _statuses(first, seen) for host in status.hosts}
    down = [host for host in hosts.values() if host.up is False or host.quarantine is not None]
    for host in down[:MAX_HOSTS]:
        if host.quarantine is not None:
            yield f"host {host.name} is quarantined: {host.quarantine}; nodepool release {host.name} ends that"
        else:
            yield f"host {host.name} is down: {host.text}"
    in_use = [node for node in _nodes(first, seen) if node.state in (states.IN_USE, states.HOLD)]
    old = _oldest(node for node in in_use if set(node.type) & set(request.node_types))
    if old is not None:
        yield f"node {old.key} has its host for the longest time; nodepool explain {old.key} shows for whom"


def _next_attempt(request: NodeRequest, first: PoolVerdict, seen: Observed) -> list[str]:
    due = [status.next for status in _statuses(first, seen) if status.next is not None]
    return [f"{first.pool} is tried again in {max(0.0, when - seen.now):.0f} s" for when in due[:1]]


def _last_error(request: NodeRequest, first: PoolVerdict, seen: Observed) -> Iterator[str]:
    errors = [status.launches.last_error for status in _statuses(first, seen)]
    found = [error for error in errors if error is not None]
    for error in found[:1]:
        yield f"the last launch that failed there, of node {error.node}: {error.text}"
        if error.node in seen.consoles:
            yield f"nodepool explain {error.node} shows the end of its console"


_FEWER: Final = "ask for fewer nodes in the nodeset, or {}; all nodes of a request come from one pool"
_LOG: Final = "search the log of {logs} for {request}"
#: Code of the pool that is nearest to serving a request -> what helps, as a sentence; reference/reasons shows it.
SENTENCES: Final[Mapping[str, str]] = {
    ReasonCode.ROOM_STATIC.value: _FEWER.format("add hosts or raise max-parallel-jobs"),
    ReasonCode.QUOTA_TOO_SMALL.value: _FEWER.format("raise the limit"),
    ReasonCode.WAIT_MAX_CONCURRENCY.value: "max-concurrency of provider {provider} says how many launches may run",
    ReasonCode.STATUS_MISSING.value: _LOG,
    ReasonCode.DECLINED_BEFORE.value: _LOG,
    ReasonCode.DRIVER_ERROR.value: _LOG,
}
#: The same, as far as it depends on what there is.
REMEDIES: Final[Mapping[str, Callable[[NodeRequest, PoolVerdict, Observed], Iterable[str]]]] = {
    **dict.fromkeys(("room.instances", "room.cores", "room.ram", "room.resource", "room.hidden"), _room),
    ReasonCode.WAIT_POOL_PAUSED.value: _room,
    ReasonCode.ROOM_TENANT.value: _tenant,
    ReasonCode.WAIT_TENANT_ORDER.value: _tenant,
    ReasonCode.WAIT_READY_NODE.value: _static,
    ReasonCode.PROVIDER_CIRCUIT_OPEN.value: _next_attempt,
    ReasonCode.LAUNCH_FAILED.value: _last_error,
}


def _statuses(first: PoolVerdict, seen: Observed) -> list[PoolStatus]:
    """What launchers report of the pool of a verdict."""
    return [pool.status for pool in seen.pools.values() if pool.name == first.pool and pool.status is not None]


def _nodes(first: PoolVerdict, seen: Observed) -> list[Node]:
    """The nodes of the provider of a verdict."""
    provider = seen.provider_of(first.pool)
    return [node for node in seen.nodes.values() if node.provider == provider]


def _oldest(nodes: Iterable[Node]) -> Node | None:
    return min(nodes, key=lambda node: (node.state_time or 0.0, node.key), default=None)


# What each pool does about one request: what it reports, or else what follows from the rules of acceptance.
#
# Launchers of older releases report no status. Of these only the registry and ``declined_by`` are known.

#: Stages of requests that wait, although the pool has something to do with them.
_WAITING_STAGES: Final = frozenset({Stage.WAITING.value, Stage.DEFERRED.value, Stage.PAUSED.value})
#: Codes: the provider, the pool or its launcher takes nothing, no matter who asks.
_ABSENT_CODES: Final = frozenset(
    {
        *("provider.circuit-open", "provider.paused", "provider.draining", "provider.starting"),
        *("pool.paused", "pool.draining", "label.paused", "launcher.paused", "launcher.draining"),
        "backing.held",
    }
)
#: Tenants that are named whose requests come before one.
MAX_TENANTS: Final = 5
#: Of reasons to decline, those that say the least.
_DULL: Final = (ReasonCode.DECLINED_BEFORE.value, ReasonCode.LABEL_UNKNOWN.value)


def _count_ahead(request: NodeRequest, seen: Observed) -> Callable[[PoolFacts], int]:
    """How many requests come before one, in any pool: that is counted for many pools in one look at the requests."""
    others = seen.requests.values()
    if seen.order is not None:
        return lambda pool: first_in_shares(request, pool, seen).total()
    before = [other for other in others if other.order_key < request.order_key]
    pending = {other.key for other in before if other.state == states.PENDING}
    open_ones = (other for other in before if other.state == states.REQUESTED)
    waiting = Counter((frozenset(other.node_types), frozenset(other.declined_by)) for other in open_ones)

    def count(pool: PoolFacts) -> int:
        """In a pool: those that it could serve, and those that it has locked and that wait for room."""
        here = ((labels, number) for (labels, declined_by), number in waiting.items() if pool.id not in declined_by)
        locked = () if pool.status is None else pool.status.requests
        paused = sum(one.stage == Stage.PAUSED.value and one.id in pending for one in locked)
        return paused + sum(number for labels, number in here if pool.labels.issuperset(labels))

    return count


def first_in_shares(request: NodeRequest, pool: PoolFacts, seen: Observed) -> Counter[str]:
    """Tenant -> how many of its requests come before one in a pool, where tenants have shares."""
    others = (
        other
        for other in seen.requests.values()
        if other.state == states.REQUESTED
        and pool.labels.issuperset(other.node_types)
        and pool.id not in other.declined_by
    )
    return Counter() if seen.order is None else served_before(seen.order, request, others)


def share_text(request: NodeRequest, first: PoolVerdict | None, seen: Observed) -> str:
    """The share of the tenant of a request that waits, and who goes first, as an addition to a sentence."""
    if seen.order is None or first is None or first.verdict != WAITS:
        return ""
    pools = (pool for pool in seen.pools.values() if pool.name == first.pool)
    before = first_in_shares(request, next(pools), seen).most_common(MAX_TENANTS)
    who = ", ".join(f"{counted(number, 'request')} of {tenant or 'no tenant'}" for tenant, number in before)
    tenant, standing = request.tenant_name or "", seen.order.standing(request.tenant_name or "")
    return (
        f"; {f'tenant {tenant}' if tenant else 'no tenant'} uses {standing.text}{f'; first come {who}' if who else ''}"
    )


def verdicts(request: NodeRequest, seen: Observed) -> list[PoolVerdict]:
    """One for each pool that could serve a request, or has declined it; the most promising first."""
    kind = RequestKind.of(request)
    infos = [pool.info for pool in seen.pools.values() if pool.component is not None]
    count_ahead = _count_ahead(request, seen)
    found: dict[str, list[PoolVerdict]] = {}
    # Pools that declined it may not be there any more.
    gone = [PoolFacts(pool_id, None, None) for pool_id in request.declined_by if pool_id not in seen.pools]
    for pool in (*seen.pools.values(), *gone):
        told = _of_pool(request, kind, pool, infos, seen)
        if told is not None:
            count = count_ahead(pool) if told.verdict == WAITS else 0
            found.setdefault(pool.name, []).append(replace(told, ahead=count, since=in_its_life(request, told.since)))
    return sorted(map(_joined, found.values()), key=rank)


def served_out_of_sight(request: NodeRequest, seen: Observed) -> tuple[ReasonCode, str]:
    """What is done for a request that is locked, although no pool reports it."""
    texts = []
    for part in (one for one in seen.requests.values() if parent_of(one) == request.key):
        labels, first = ", ".join(part.node_types), next(iter(verdicts(part, seen)), None)
        why = "" if first is None else f": {first.pool}: {first.text}"
        ready = part.state == states.FULFILLED
        texts.append(f"{labels} is ready" if ready else f"waits for {labels} from another pool, request {part.id}{why}")
    if texts:
        return ReasonCode.SERVED_GATHERING, f"is served by several pools: {'; '.join(texts)}"
    if seen.pools and all(pool.status for pool in seen.pools.values()):
        return ReasonCode.SERVED_LAUNCHING, "is served: a launcher has begun with it, and reports where in some seconds"
    return ReasonCode.STATUS_MISSING, "is served by a launcher that tells no status, and has no node yet"


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


def _told(pool: PoolFacts, verdict: str, told: RequestStatus | WaitingStatus) -> PoolVerdict:
    """What a pool reports of a request, or of its kind."""
    host = [pool.host]
    return PoolVerdict(pool.name, host, verdict, told.code, told.text, dict(told.numbers), told.since or None)


def _says(pool: PoolFacts, verdict: str, code: ReasonCode | str, text: str, since: float | None = None) -> PoolVerdict:
    """What follows of what is known of a pool."""
    code = code.value if isinstance(code, ReasonCode) else code
    return PoolVerdict(pool.name, [pool.host], verdict, code, text, since=since or None)


def _of_pool(
    request: NodeRequest, kind: RequestKind, pool: PoolFacts, infos: Sequence[PoolInfo], seen: Observed
) -> PoolVerdict | None:
    """None = the pool has nothing to do with it."""
    for told in () if pool.status is None else pool.status.requests:
        if told.id == request.key:
            return _told(pool, WAITS if told.stage in _WAITING_STAGES else SERVES, told)
    if pool.id in request.declined_by:
        return _declined(request, pool)
    if request.state == states.REQUESTED:
        return _of_waiting(kind, pool, infos, seen.mixed_labels)
    if request.state == states.PENDING:
        return _of_pending(request, pool, seen)
    return None


def _of_waiting(
    kind: RequestKind, pool: PoolFacts, infos: Sequence[PoolInfo], mixed: frozenset[str]
) -> PoolVerdict | None:
    """Of a request that the pool may still take."""
    status = pool.status
    told = None if status is None else _of_kind(kind, status)
    if told is not None:
        absent, turn = told.code in _ABSENT_CODES, told.code.startswith("turn.")
        return _told(pool, ABSENT if absent else LEAVES if turn else WAITS, told)
    screened = judge(kind, pool.info, infos, (), mixed)
    if screened == Leave(SEVERAL_POOLS):
        return _says(pool, LEAVES, SEVERAL_POOLS.code, SEVERAL_POOLS.text)
    if not pool.labels.issuperset(kind.labels):
        return None
    if status is not None and status.state in ("unavailable", "maintenance", "starting"):
        code = status.code or ReasonCode.PROVIDER_STARTING
        return _says(pool, ABSENT, code, status.text or "the provider is not started yet", status.since)
    if not isinstance(screened, Consider):
        verdict = LEAVES if isinstance(screened, Leave) else DECLINED
        return _says(pool, verdict, screened.reason.code, screened.reason.text)
    if status is not None:
        for broken in (status.labels[label] for label in kind.labels if label in status.labels):
            return _says(pool, DECLINED, broken.code, broken.text, broken.since)
        if not status.omitted:
            return _says(pool, WAITS, NEXT_PASS.code, NEXT_PASS.text)
    return _says(pool, WAITS, ReasonCode.STATUS_MISSING, _silence(pool))


def _of_pending(request: NodeRequest, pool: PoolFacts, seen: Observed) -> PoolVerdict | None:
    """Of a request that some launcher has locked, and that no status has: its nodes tell where."""
    nodes = [node for node in seen.allocated_to(request).values() if node.launcher == pool.id]
    if not nodes:
        return None
    text = f"{len(nodes)} of {len(request.node_types)} nodes are there or are being launched"
    since = min((node.created_time for node in nodes if node.created_time is not None), default=None)
    return _says(pool, SERVES, ReasonCode.SERVED_LAUNCHING, text, since)


def _declined(request: NodeRequest, pool: PoolFacts) -> PoolVerdict:
    for told in () if pool.status is None else reversed(pool.status.declined):
        if told.id == request.key:
            return _told(pool, DECLINED, told)
    missing = sorted(set(request.node_types) - pool.labels) if pool.component is not None else []
    if missing:
        text = f"label(s) {', '.join(missing)} not available in this pool"
        return _says(pool, DECLINED, ReasonCode.LABEL_UNKNOWN, text)
    if pool.status is not None:
        text = "it declined the request some time ago; the log of the launcher has the reason"
    elif pool.component is not None:
        text = f"it declined the request; {_silence(pool)}"
    else:
        text = f"it declined the request, and is not registered any more; the log of {pool.host} has the reason"
    return _says(pool, DECLINED, ReasonCode.DECLINED_BEFORE, text)


def _silence(pool: PoolFacts) -> str:
    """Why a pool says nothing of the request."""
    if pool.status is not None:
        return f"the status record of launcher {pool.host} has no room for all requests; its log has the reason"
    paused = "another request waits for room there; " if pool.info.paused else ""
    return f"{paused}launcher {pool.host} ({pool.version}) tells no status; its log may have the reason"


def _of_kind(kind: RequestKind, status: PoolStatus) -> WaitingStatus | None:
    """What a pool tells of the requests of a kind."""
    like = (list(kind.labels), kind.provider, kind.tenant_name, kind.min_ready)
    same = [one for one in status.waiting if (list(one.labels), one.provider, one.tenant, one.min_ready) == like]
    # Another pool may have declined it since then: what is known of its like is near enough.
    return min(same, key=lambda told: told.mark != kind.mark, default=None)


# Images: builds, uploads, and what keeps them from being made.


def explain_image(name: str, seen: Observed) -> ExplainedThing:
    """Newest build, what each provider has of it, and why there is no newer one.

    :param name: of an image, one of the cloud too, or ``<image>-<build>``.
    """
    known = seen.images.images
    pairs = ((image, f"{image}-{build}") for image, view in known.items() for build in view.builds)
    image = name if name in known else next((image for image, build in pairs if build == name), name)
    view, wanted = seen.images.image(image), name[len(image) + 1 :]
    found = (build for build in view.builds.values() if wanted in ("", build.id))
    builds = sorted(found, key=lambda build: (build.time, build.id), reverse=True)
    used = (node for node in seen.nodes.values() if image_of(node) == (image, wanted or image_of(node)[1]))
    users = Counter(f"{node.state} in {node.provider}" for node in used)
    tried = {one.provider: one for launcher in seen.launchers for one in launcher.candidates if one.image == image}
    providers = sorted({provider for one in builds for provider in one.uploads})
    places = [_image_place(provider, view, builds, tried.get(provider)) for provider in providers]
    failed = [one["provider"] for one in places if one["state"] == states.FAILED]
    remedies = [f"the log of nodepool-builder says why the upload to {provider} failed" for provider in failed]
    state, since, text = "not built", None, "is not built yet"
    if image not in known:
        state, text = "of the cloud", "is an image of the cloud: nodepool-builder does not build it"
        if (labels := seen.cloud_images.get(image)) is not None:
            text += f"; labels that boot from it: {named(labels)}" if labels else "; no label boots from it"
    if builds:
        newest = builds[0]
        state, since = newest.state or "unreadable", newest.time
        by = "" if newest.record is None or not newest.record.builder else f", by {newest.record.builder}"
        text = f"has the newest build {newest.id}, which is {state} for {short(seen.now - since)}{by}"
        if newest.record is not None and newest.record.source:
            text += f", imported from {newest.record.source}"
        ready = [one["provider"] for one in places if one["state"] == states.READY]
        text += f"; the newest upload is ready in {', '.join(ready)}" if ready else ""
        text += f"; the upload to {', '.join(failed)} failed" if failed else ""
        if state == states.FAILED:
            remedies.append(f"nodepool image-log {image}-{newest.id}, on the host of its builder, shows why it failed")
    for provider in [provider for provider in providers if view.candidate(provider) is not None]:
        remedies.append(f"nodepool image-promote {provider} {image} and image-rollback end the trial of the candidate")
    if view.paused:
        text += "; it is paused: nothing new is built"
        remedies.append(f"nodepool image-unpause {image} lets it be built again")
    elif image in known and seen.builders is not None and not seen.builders:
        remedies.append("no builder is registered: start nodepool-builder")
    elif view.build_requested is not None and not view.build_locked:
        remedies.append(_request_remedy(view, seen, short(seen.now - view.build_requested)))
    facts = {"nodes": [f"{count} {what}" for what, count in sorted(users.items())]}
    return ExplainedThing(name, state, text, "image", since, facts, places, remedies=remedies)


def _request_remedy(view: ImageView, seen: Observed, asked: str) -> str:
    """Why nothing is done for a request."""
    source = view.requested_source
    if source is None:
        return f"a build was asked for {asked} ago, and no builder has begun it: does one have the image?"
    text = f"an import of {source.shown} was asked for {asked} ago, and no builder has begun it"
    hosts = seen.builders or ()
    nowhere = hosts and all(seen.lacking_files.get(host, {}).get(view.name) == source.place for host in hosts)
    return f"{text}: {'no builder has the file' if nowhere else 'does one have the image?'}"


def _image_place(
    provider: str, view: ImageView, builds: Sequence[BuildView], tried: CandidateStatus | None
) -> dict[str, Any]:
    """What a provider has of an image. :param tried: its candidate, as a launcher reports it."""
    uploads = [(one.id, upload.record) for one in builds for upload in one.uploads.get(provider, ()) if upload.record]
    current = view.current_upload(provider)
    text = "there is no ready upload" if current is None else f"its nodes are made of build {current.build_id}"
    if current is not None and current.build_id == builds[0].id:
        text = "its nodes are made of the newest build"
    build_id, last = uploads[0] if uploads else ("", None)
    if last is not None and last.state != states.READY:
        text += f"; upload {last.id} of build {build_id} is {last.state}"
    if (candidate := view.candidate(provider)) is not None:
        text += f"; build {candidate.build_id} is a candidate: "
        text += "no launcher reports on it" if tried is None else tried.text
        others = (one for one in view.candidates() if one.provider_name == provider and one is not candidate)
        text += "".join(f"; build {one.build_id} waits for the end of that" for one in others)
    elif last is not None and last.verdict:
        text += f"; build {build_id} was {'rolled back' if last.rolled_back else 'promoted'}: {last.verdict}"
    state, since = ("nothing", None) if last is None else (last.state, last.state_time)
    return {"provider": provider, "state": state, "since": since, "text": text}
