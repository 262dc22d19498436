# SPDX-License-Identifier: Apache-2.0
"""Waiting requests: in which order they stand, what a pool does with one, and in which stage it is then.

First the queue, in buckets of requests that are judged alike (`RequestKind`, `RequestQueue`), and the ready nodes that
may serve them (`ReadyNodes`). Then all rules of acceptance, in the order in which they hold: `triage_kind` judges all
requests of a kind, `triage` the first one of a kind that passed. Before them comes what they ask: may this pool serve a
kind at all (`judge`), why did a request fail, and which pool tries first. Last the stages of a request in a pool, and
the moves between them (`MOVES`).
"""

from __future__ import annotations

import bisect
import enum
import functools
import math
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from nodepool.model import reasons, states
from nodepool.model.config_keys import allows, did_you_mean
from nodepool.model.event import cut, grouped, named
from nodepool.model.node import Node
from nodepool.model.reasons import FIRST_CHOICE, NO_LAUNCHES, SIBLING_SERVES, Reason, ReasonCode, no_access
from nodepool.model.request import PART_REQUESTOR, NodeRequest, OrderKey, project_of
from nodepool.model.status import TOGETHER, AccessRule

if TYPE_CHECKING:
    from nodepool.launcher.pool.view import PoolView, RequestView

# Waiting requests of one pool, in order, in buckets of requests that are judged alike.
#
# Whether a pool may serve a request depends on a few of its fields only. Requests that agree in these share a bucket,
# and the pool judges a bucket, not each request: work follows the number of kinds of requests, not the length of the
# backlog. Only the head of a bucket is looked at.

#: ``requestor`` of requests that keep ``min-ready`` nodes there (rule M-2).
MIN_READY_REQUESTOR = "NodePool:min-ready"
#: How the requestors of launchers begin: those requests have no tenant, and are for all of them. A part of a request is
#: for the tenant of the whole.
LAUNCHERS: Final = "NodePool:"


class RequestKind(NamedTuple):
    """What the requests of a bucket have in common."""

    labels: tuple[str, ...]
    provider: str | None
    declined_by: frozenset[str]
    tenant_name: str | None
    reuse: bool
    min_ready: bool
    of_launcher: bool = False
    #: Only where projects have shares.
    project: str | None = None

    @classmethod
    def of(cls, request: NodeRequest, *, by_project: bool = False) -> RequestKind:
        return cls(
            tuple(sorted(request.node_types)),
            request.provider,
            frozenset(request.declined_by),
            request.tenant_name,
            request.reuse,
            request.requestor == MIN_READY_REQUESTOR,
            str(request.requestor).startswith(LAUNCHERS) and request.requestor != PART_REQUESTOR,
            project_of(request) if by_project else None,
        )

    def may_have(self, tenants: Sequence[str] | None) -> bool:
        """Does ``allowed-tenants`` of something allow such requests? (A-24)"""
        return self.of_launcher or allows(tenants, self.tenant_name)

    @property
    def mark(self) -> str:
        """A few characters that tell this kind from others with the same labels, provider and tenant."""
        project = () if self.project is None else (self.project,)
        parts = (*sorted(self.declined_by), str(self.reuse), str(self.min_ready), str(self.of_launcher), *project)
        return f"{zlib.crc32(' '.join(parts).encode()):08x}"


class Bucket:
    """Waiting requests of one kind, in service order."""

    def __init__(self, kind: RequestKind) -> None:
        self.kind = kind
        self._entries: list[tuple[OrderKey, str]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter([request_id for _, request_id in self._entries])

    def first(self, count: int) -> list[str]:
        """Ids of the requests that are served first, at most ``count``."""
        return [request_id for _, request_id in self._entries[:count]]

    @property
    def head_key(self) -> OrderKey:
        return self._entries[0][0]

    @property
    def head(self) -> str:
        """Id of the request that is served first."""
        return self._entries[0][1]

    def oldest(self) -> str | None:
        """Id of the request that was submitted first; None = there is none any more. Any thread; looks at each."""
        return min(self._entries.copy(), key=lambda entry: entry[0][-1], default=(None, None))[1]

    def add(self, key: OrderKey, request_id: str) -> None:
        bisect.insort(self._entries, (key, request_id))

    def index(self, key: OrderKey, request_id: str) -> int:
        return bisect.bisect_left(self._entries, (key, request_id))

    def remove(self, key: OrderKey, request_id: str) -> None:
        del self._entries[self.index(key, request_id)]


class RequestQueue:
    """Waiting requests, by kind. Owned by one thread."""

    def __init__(self) -> None:
        self._buckets: dict[RequestKind, Bucket] = {}
        self._where: dict[str, tuple[Bucket, OrderKey]] = {}
        #: Do requests of different projects differ in kind? What is in the queue then is to be put once more.
        self.by_project = False
        #: How often a kind came or went.
        self.kinds_version = 0

    def __len__(self) -> int:
        return len(self._where)

    def put(self, request: NodeRequest) -> None:
        """Add a request, or move it to where it belongs now."""
        request_id = request.key
        key = request.order_key
        kind = RequestKind.of(request, by_project=self.by_project)
        found = self._where.get(request_id)
        if found is not None:
            if found[0].kind == kind and found[1] == key:
                return
            self.discard(request_id)
        bucket = self._buckets.get(kind)
        if bucket is None:
            bucket = self._buckets[kind] = Bucket(kind)
            self.kinds_version += 1
        bucket.add(key, request_id)
        self._where[request_id] = (bucket, key)

    def discard(self, request_id: str) -> None:
        """Remove a request; one that is not here is fine."""
        found = self._where.pop(request_id, None)
        if found is None:
            return
        bucket, key = found
        bucket.remove(key, request_id)
        if not bucket:
            del self._buckets[bucket.kind]
            self.kinds_version += 1

    def bucket_of(self, request_id: str) -> Bucket | None:
        """Where a request waits; None = it is not here."""
        found = self._where.get(request_id)
        return None if found is None else found[0]

    def place_of(self, request_id: str) -> int | None:
        """How many requests of its kind are served before a request; None = it is not here."""
        found = self._where.get(request_id)
        return None if found is None else found[0].index(found[1], request_id)

    def ids(self) -> list[str]:
        """All requests that wait, in no order."""
        return list(self._where)

    def oldest(self, kind: RequestKind) -> str | None:
        """Id of the request of a kind that was submitted first; None = there is none any more. Any thread."""
        bucket = self._buckets.get(kind)
        return None if bucket is None else bucket.oldest()

    def count(self, kind: RequestKind) -> int:
        """How many requests of a kind wait."""
        bucket = self._buckets.get(kind)
        return 0 if bucket is None else len(bucket)

    def buckets(self) -> list[Bucket]:
        return list(self._buckets.values())

    def clear(self) -> None:
        self._buckets.clear()
        self._where.clear()


# Which ready nodes serve which labels? (rules N-1, N-2, N-5, N-7)


def is_free(node: Node, provider: str, pool: str) -> bool:
    """Could this pool hand the node out, if no one holds its lock?"""
    return node.state == states.READY and node.allocated_to is None and node.provider == provider and node.pool == pool


class ReadyNodes:
    """Free nodes of one pool, by label, oldest first. Owned by one thread."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._by_label: dict[str, dict[str, Node]] = {}
        #: Node -> ``allowed-tenants``, of nodes that have it.
        self._tenants: dict[str, Sequence[str]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._nodes

    def put(self, node: Node, tenants: Sequence[str] | None = None) -> None:
        """Add a node, or take its newer record. :param tenants: that may have it; None = all."""
        node_id = node.key
        old = self._nodes.get(node_id)
        if old is not None and old.type != node.type:
            self.discard(node_id)
        if tenants is not None:
            self._tenants[node_id] = tenants
        elif self._tenants:
            self._tenants.pop(node_id, None)
        if old is node:
            return
        self._nodes[node_id] = node
        for label in node.type:
            self._by_label.setdefault(label, {})[node_id] = node

    def discard(self, node_id: str) -> None:
        """Remove a node; one that is not here is fine."""
        node = self._nodes.pop(node_id, None)
        if node is None:
            return
        self._tenants.pop(node_id, None)
        for label in node.type:
            nodes = self._by_label.get(label)
            if nodes is not None:
                nodes.pop(node_id, None)
                if not nodes:
                    del self._by_label[label]

    def clear(self) -> None:
        self._nodes.clear()
        self._by_label.clear()
        self._tenants.clear()

    def count(self, label: str) -> int:
        return len(self._by_label.get(label, ()))

    def oldest(self) -> Node | None:
        """The free node that has been ready for the longest time."""
        return min(self._nodes.values(), key=lambda node: node.state_time or 0, default=None)

    def could_serve(self, labels: Collection[str], kind: RequestKind | None = None) -> bool:
        """Is there at least one free node for each label, and are there enough of them? A quick first look.

        :param kind: only nodes for such requests count; None = all do.
        """
        if len(self._nodes) < len(labels) or any(label not in self._by_label for label in labels):
            return False
        return not self._tenants or all(any(True for _ in self._of(label, kind)) for label in labels)

    def _of(self, label: str, kind: RequestKind | None) -> Iterable[Node]:
        """Nodes of a label for requests of a kind, or for any."""
        nodes = self._by_label.get(label, {})
        if not self._tenants or kind is None:
            return nodes.values()
        return (node for node_id, node in nodes.items() if kind.may_have(self._tenants.get(node_id)))

    def choose(self, wanted: Sequence[str], az: str | None = None, kind: RequestKind | None = None) -> dict[int, Node]:
        """Pick a node for as many of the wanted labels as possible.

        :param wanted: labels, duplicates included.
        :param az: zone that the nodes must share; None = any one zone.
        :param kind: only nodes for such requests; None = any.
        :return: position in ``wanted`` -> node. Nodes without a zone fit every zone.
        """
        if len(wanted) == 1 and az is None:
            for node in self._of(wanted[0], kind):
                return {0: node}
            return {}
        zones: list[str | None] = [az]
        if az is None:
            found = {n.az for label in set(wanted) for n in self._of(label, kind)} - {None}
            zones = [*sorted(z for z in found if z is not None)] or [None]
        best: dict[int, Node] = {}
        for zone in zones:
            chosen = self._match(wanted, zone, kind)
            if len(chosen) > len(best):
                best = chosen
            if len(best) == len(wanted):
                break
        return best

    def _match(self, wanted: Sequence[str], zone: str | None, kind: RequestKind | None) -> dict[int, Node]:
        """A largest assignment of nodes to positions (augmenting paths, Kuhn).

        A node with several labels must not be spent where a plainer one would do: taking the first fit
        could leave a request waiting for ever on static hosts.
        """
        candidates = {label: self._candidates(label, zone, kind, len(wanted)) for label in set(wanted)}
        holder: dict[str, int] = {}
        for position in range(len(wanted)):
            _augment(position, wanted, candidates, holder)
        return {position: self._nodes[node_id] for node_id, position in holder.items()}

    def _candidates(self, label: str, zone: str | None, kind: RequestKind | None, limit: int) -> list[str]:
        """Enough nodes of a label: with as many as there are positions, one is always free."""
        found: list[Node] = []
        for node in self._of(label, kind):
            if node.az is None or zone is None or node.az == zone:
                found.append(node)
                if len(found) >= limit:
                    break
        found.sort(key=lambda node: len(node.type))
        return [node.key for node in found]


def can_match(wanted: Sequence[str], offers: Sequence[Collection[str]]) -> bool:
    """Could each wanted label have an offer of its own?

    :param offers: labels of each place for a node, free or not.
    """
    if len(wanted) > len(offers):
        return False
    candidates: dict[str, list[str]] = {label: [] for label in wanted}
    for number, labels in sorted(enumerate(offers), key=lambda entry: len(entry[1])):
        for label in set(labels):
            if label in candidates and len(candidates[label]) < len(wanted):
                candidates[label].append(str(number))
    holder: dict[str, int] = {}
    return all(_augment(position, wanted, candidates, holder) for position in range(len(wanted)))


def _augment(
    start: int, wanted: Sequence[str], candidates: Mapping[str, Sequence[str]], holder: dict[str, int]
) -> bool:
    """Give position ``start`` a node, moving others to another node if need be (no recursion: sets can be large)."""
    came_from: dict[str, tuple[int, str | None]] = {}
    frontier: list[tuple[int, str | None]] = [(start, None)]
    while frontier:
        position, via = frontier.pop()
        for node_id in candidates[wanted[position]]:
            if node_id in came_from:
                continue
            came_from[node_id] = (position, via)
            if node_id not in holder:
                current: str | None = node_id
                while current is not None:
                    owner, previous = came_from[current]
                    holder[current] = owner
                    current = previous
                return True
            frontier.append((holder[node_id], node_id))
    return False


# May this pool serve a kind of request? (rules)


@dataclass(frozen=True)
class PoolInfo:
    """One registered pool, as others see it."""

    id: str
    provider_name: str
    labels: frozenset[str]
    priority: int
    paused: bool
    name: str = ""
    #: None = not known: it is of a launcher of 11.0.0.
    access: tuple[AccessRule, ...] | None = None
    #: Label -> how many nodes the pool can have in all; '' = of any other label. Empty = it publishes none.
    capacity: Mapping[str, float] = field(default_factory=dict, hash=False)
    #: Resource -> limit, of pools that publish them (rule FS-4).
    limits: Mapping[str, float] = field(default_factory=dict, compare=False)

    @property
    def place(self) -> str:
        """For people, such as ``cloud-1/main``."""
        return f"{self.provider_name}/{self.name}" if self.name else self.provider_name

    def serves(self, kind: RequestKind) -> bool:
        """Has the pool all labels of such requests, for their tenant?"""
        return self.labels.issuperset(kind.labels) and self.no_access(kind) is None

    def capacity_for(self, labels: Collection[str]) -> float | None:
        """How many nodes the pool can have, if some of them have these labels; None = not known."""
        found = [self.capacity.get(label, self.capacity.get("")) for label in labels]
        known = [nodes for nodes in found if nodes is not None]
        return min(known) if known and len(known) == len(found) else None

    def labels_for(self, kind: RequestKind) -> frozenset[str]:
        """The labels of which the tenant of such requests may have nodes of this pool (A-24)."""
        denied = [labels for tenants, labels in self.access or () if not kind.may_have(tenants)]
        return self.labels.difference(*(self.labels if labels is None else labels for labels in denied))

    def no_access(self, kind: RequestKind) -> Reason | None:
        """Why the tenant of such requests may not have nodes of this pool; None = it may (A-24)."""
        for tenants, labels in self.access or ():
            concerned = labels is None or sorted(labels.intersection(kind.labels))
            if concerned and not kind.may_have(tenants):
                what = "the pool" if concerned is True else f"label {concerned[0]}"
                return no_access(kind.tenant_name, what)
        return None


@dataclass(frozen=True)
class Consider:
    """The pool may take such a request, if it has the means."""


@dataclass(frozen=True)
class Leave:
    """Not now, or not for us."""

    reason: Reason


@dataclass(frozen=True)
class Decline:
    """The pool must decline such a request, so that it can fail when everybody has."""

    reason: Reason


Verdict = Consider | Leave | Decline


def screen(kind: RequestKind, me: PoolInfo, registered: Iterable[PoolInfo], absent: Iterable[PoolInfo] = ()) -> Verdict:
    """Judge a kind of request.

    :param me: this pool.
    :param registered: all registered pools, this one included.
    :param absent: pools that went a moment ago and may come back.
    """
    if me.id in kind.declined_by:
        return Leave(Reason(ReasonCode.DECLINED_BEFORE, "declined by this pool before"))
    able = [pool for pool in registered if pool.id != me.id and pool.id not in kind.declined_by and pool.serves(kind)]
    if kind.provider and kind.provider != me.provider_name:
        for pool in able:
            if pool.provider_name == kind.provider:
                text = f"wants provider {kind.provider}, which can serve it"
                return Leave(Reason(ReasonCode.TURN_OF_WANTED_PROVIDER, text))
    for pool in able:
        if kind.provider == me.provider_name and pool.provider_name != me.provider_name:
            # It leaves the request to the provider that is asked for: if we left it too, it would wait for ever.
            continue
        if pool.priority < me.priority and not pool.paused:
            return Leave(Reason(ReasonCode.TURN_OF_PRIORITY, f"pool {pool.place} has a better priority"))
    missing = sorted(set(kind.labels) - me.labels)
    denied = None if missing else me.no_access(kind)
    if not missing and denied is None:
        return Consider()
    problem = f"label {missing[0]} is not here" if denied is None else denied.text
    # A launcher of 11.0.0 does not know of the access: it leaves the request to this pool for ever.
    if able and (denied is None or all(pool.access is not None for pool in able)):
        return Leave(Reason(ReasonCode.TURN_OF_LABEL, f"{problem}, but pool {able[0].place} can serve it"))
    awaited = None if able else may_come_back(kind, absent)
    if awaited is not None:
        text = f"{problem}, but pool {awaited.place}, which went a moment ago, could serve it"
        return Leave(Reason(ReasonCode.TURN_OF_ABSENT_POOL, text))
    unknown = Reason(ReasonCode.LABEL_UNKNOWN, f"label(s) {', '.join(missing)} not available in this pool")
    return Decline(denied or unknown)


@functools.lru_cache(maxsize=1000)
def split(
    node_types: tuple[str, ...], mixed: frozenset[str], pools: tuple[PoolInfo, ...]
) -> tuple[tuple[int, ...], ...] | None:
    """The parts of a request that no pool can serve alone: positions in ``node_types``. None = it is not split.

    The pool that has most of its labels is to serve the first part; each label that it lacks is a part of its own.

    :param mixed: labels with ``mixed-nodesets``.
    :param pools: all that are registered, and those that may come back.
    """
    wanted = set(node_types)
    if wanted.isdisjoint(mixed) or any(pool.labels >= wanted for pool in pools):
        return None
    able = [pool for pool in pools if wanted & pool.labels and wanted - pool.labels <= mixed]
    if not able or not wanted <= {label for pool in pools for label in pool.labels}:
        return None
    first = max(able, key=lambda pool: (sum(label in pool.labels for label in node_types), -pool.priority, pool.id))
    parts = grouped(range(len(node_types)), lambda at: "" if node_types[at] in first.labels else node_types[at])
    return tuple(map(tuple, parts.values()))


def parts_for(
    kind: RequestKind, node_types: Sequence[str], mixed: frozenset[str], pools: Sequence[PoolInfo]
) -> tuple[tuple[int, ...], ...] | None:
    """The parts of a request, of pools that serve its tenant (`split`); None = it is not split.

    If these pools have not all labels, others count, too: a part that they deny fails, and says why.
    """
    theirs = tuple(replace(pool, labels=pool.labels_for(kind)) if pool.access else pool for pool in pools)
    return split(tuple(node_types), mixed, theirs) or split(tuple(node_types), mixed, tuple(pools))


def judge(
    kind: RequestKind, me: PoolInfo, registered: Sequence[PoolInfo], absent: Sequence[PoolInfo], mixed: frozenset[str]
) -> Verdict:
    """`screen`, but what is served by several pools is declined by none."""
    found = screen(kind, me, registered, absent)
    if isinstance(found, Decline) and parts_for(kind, kind.labels, mixed, (*registered, *absent)) is not None:
        return Leave(reasons.SEVERAL_POOLS)
    return found


def may_come_back(kind: RequestKind, absent: Iterable[PoolInfo]) -> PoolInfo | None:
    """A pool that went a moment ago and could serve such requests; None = there is none."""
    return next((pool for pool in absent if pool.id not in kind.declined_by and pool.serves(kind)), None)


def declined_state(kind: RequestKind, registered_ids: Collection[str], absent: Iterable[PoolInfo] = ()) -> str:
    """State of a request after a pool declined it (A-15).

    :param kind: of the request, with this pool among those that declined it.
    :param absent: pools that went a moment ago. For one that could serve it the request waits; it fails when they are
        given up (`nodepool.launcher.deletion`).
    """
    if kind.declined_by.issuperset(registered_ids) and may_come_back(kind, absent) is None:
        return states.FAILED
    return states.REQUESTED


def decline(
    request: NodeRequest, pool_id: str, registered_ids: Collection[str], absent: Iterable[PoolInfo] = ()
) -> None:
    """Make a request's record one that a pool has declined (A-14, A-15). Nothing else writes ``declined_by``.

    :param request: changed in place.
    :param registered_ids: of all pools. ``absent``: see `declined_state`.
    """
    if pool_id not in request.declined_by:
        request.declined_by.append(pool_id)
    request.state = declined_state(RequestKind.of(request), registered_ids, absent)


# Why did a request fail that every pool declined?

#: Pools of one reason, and reasons, that are named.
MAX_POOLS: Final = 3
MAX_REASONS: Final = 5
#: Longest text of one reason.
MAX_TEXT: Final = 300
#: These say nothing of what is wrong where the request could have been served.
_LAST: Final = frozenset(
    {
        *(ReasonCode.LABEL_UNKNOWN, ReasonCode.ACCESS_TENANT),
        *(ReasonCode.POOL_DISABLED, ReasonCode.POOL_WITHOUT_LAUNCHES),
    }
)


def why_failed(answers: Mapping[str, Reason | None]) -> Reason:
    """What each pool answered, in one line: pools with the same reason together, those that tell most first.

    A pool that has not the label is no cause where another one has it. The code is that of the first reason.

    :param answers: pool, such as ``cloud-1/main``, -> why it declined; None = it is one of another launcher.
    """
    known = {pool: reason for pool, reason in answers.items() if reason is not None}
    elsewhere = [pool for pool, reason in answers.items() if reason is None]
    telling = {pool: reason for pool, reason in known.items() if reason.code is not ReasonCode.LABEL_UNKNOWN}
    said = telling if telling or elsewhere else known
    pools = grouped(said, lambda pool: (said[pool].code in _LAST, cut(said[pool].text, MAX_TEXT)))
    parts = [f"{named(pools[key], MAX_POOLS)}: {key[1]}" for key in sorted(pools, key=lambda key: key[0])]
    if len(parts) > MAX_REASONS:
        parts[MAX_REASONS:] = [f"{len(parts) - MAX_REASONS} more reasons"]
    if elsewhere:
        parts.append(f"{named(elsewhere, MAX_POOLS)}: of another launcher, whose log says why")
    first = min(said.values() or known.values(), key=lambda reason: reason.code in _LAST)
    return Reason(first.code, "; ".join(parts), first.numbers)


def label_hint(labels: Collection[str], pools: Sequence[PoolInfo], configured: Mapping[str, bool]) -> str:
    """What to do about labels that no pool can serve, as an addition to a sentence; empty if one pool has all of them.

    :param labels: of one request.
    :param pools: all registered ones.
    :param configured: label of the configuration -> has any pool of it this label?
    """
    wanted, served = set(labels), {label for pool in pools for label in pool.labels}
    told = []
    for label in sorted(wanted - served):
        if configured.get(label):
            text = f"no pool that runs has {label}; nodepool status says why the provider that has it is not served"
        elif label in configured:
            text = f"no pool that runs has {label}, although it is among the configured labels: add it to a pool"
        else:
            similar = _similar(label, frozenset({*served, *configured}))
            text = f"no pool has {label}{similar or ': correct the nodeset in Zuul, or add the label'}"
        told.append(text)
    if not told and not any(wanted <= pool.labels for pool in pools):
        together = "the nodes of a request come from one pool, unless labels have mixed-nodesets"
        told.append(f"no pool has all of {', '.join(sorted(wanted))}: {together}")
    return "".join(f"; {text}" for text in told)


@functools.lru_cache(maxsize=16)
def _similar(label: str, known: frozenset[str]) -> str:
    # To search thousands of labels takes milliseconds, and all pools of a launcher ask for the same.
    return did_you_mean(label, known)


# Which of several pools that could serve a request tries first?
#
# Without an answer all of them try, in every launcher that watches, and all but one work for nothing. Every launcher
# finds the same answer by itself: from the registry, the nodes and the request's id, which all of them see.


def able_pools(kind: RequestKind, registered: Sequence[PoolInfo]) -> list[PoolInfo]:
    """The pools that may take a kind of request, as far as the registry tells."""
    return [pool for pool in registered if isinstance(screen(kind, pool, registered), Consider)]


def first_choice(
    request_id: str, pools: Iterable[PoolInfo], weights: Mapping[str, float] = MappingProxyType({})
) -> PoolInfo | None:
    """One of some pools; None if there is none.

    A pool that comes or goes, or has another weight, changes the answer only for its share (rendezvous hashing).

    :param weights: id of a pool -> its share of the requests, in proportion to the others; empty = all the same.
    """

    def place(pool: PoolInfo) -> tuple[float, float]:
        score = _score(request_id, pool.id)
        return weights.get(pool.id, 1.0) * score, score

    return max(pools, key=place, default=None)


def _score(request_id: str, pool_id: str) -> float:
    digest = blake2b(f"{request_id} {pool_id}".encode(), digest_size=8).digest()
    # Between 0 and 1, and neither of them as a float.
    uniform = ((int.from_bytes(digest, "big") >> 12) + 0.5) / 2**52
    return -1 / math.log(uniform)


def weights_of(
    rooms: Iterable[tuple[PoolInfo, float | None]], together: Callable[[PoolInfo], float]
) -> Mapping[str, float]:
    """Weights for `first_choice`, by the room that pools have; empty = it is not known of all, or none has any.

    Launchers that serve the same pool of a provider share its room.

    :param together: how much room the pools of a provider have in all that share a limit, of one of these.
    """
    known: list[tuple[PoolInfo, float]] = []
    for pool, room in rooms:
        if room is None:
            return {}
        known.append((pool, room))
    if not any(room for _, room in known):
        return {}
    launchers = Counter((pool.provider_name, pool.name) for pool, _ in known)
    weights = {pool.id: room / launchers[pool.provider_name, pool.name] for pool, room in known}
    sharing = grouped((pool for pool, _ in known if TOGETHER in pool.capacity), lambda pool: pool.provider_name)
    for pools in sharing.values():
        total = sum(weights[pool.id] for pool in pools)
        part = min(1.0, min(map(together, pools)) / total) if total else 1.0
        weights.update({pool.id: weights[pool.id] * part for pool in pools})
    return weights


@dataclass(frozen=True)
class Wait:
    """Requests of the kind are for this pool, but not now.

    :param first_of_tenant: it waits for room in the limits of its tenant, whose later requests wait, too.
    """

    reason: Reason
    first_of_tenant: bool = False


@dataclass(frozen=True)
class Fulfil:
    """Ready nodes serve the request at once.

    :param nodes: one for each position of ``request.node_types``.
    """

    nodes: Sequence[Node]


@dataclass(frozen=True)
class Launch:
    """The request is to be locked; its handler takes ready nodes and launches the others."""


KindVerdict = Consider | Leave | Decline | Wait
HeadVerdict = Leave | Decline | Wait | Fulfil | Launch


def triage_kind(kind: RequestKind, view: PoolView) -> KindVerdict:
    """Judge all waiting requests of a kind. `Consider`: `triage` has the word."""
    # Is it for this pool at all?
    verdict = view.screened(kind)
    if not isinstance(verdict, Consider):
        return verdict
    # What an operator holds back waits; it is not declined either (MT-3, MT-5).
    held = view.held(kind)
    if held is not None:
        return Wait(held)
    # A-7, in short: nothing to decline, and no node for it now.
    if not view.launches and not view.ready.could_serve(kind.labels, kind) and view.driver_agreed(kind):
        return Wait(view.no_ready_node(kind))
    return verdict


def triage(kind: RequestKind, head: NodeRequest, view: RequestView) -> HeadVerdict:
    """Judge the first request of a kind that `triage_kind` lets pass.

    `Leave` is about this request only, `Decline` and `Wait` about all of the kind.
    """
    # One pool works on it, not all that could.
    if view.sibling_serves:
        return Leave(SIBLING_SERVES)
    if _could_begin(kind, head, view) and view.turns:
        return Leave(FIRST_CHOICE)
    # What can never be served is declined, also while nothing is accepted.
    never = _never(view)
    if never is not None:
        return Decline(never)
    # Is there room for another request?
    no_room = _no_room(kind, view)
    if no_room is not None:
        return no_room
    # Ready nodes first (A-20, N-1, N-4).
    if not head.node_types:
        return Fulfil(())
    chosen = _ready_nodes(kind, head, view)
    if chosen is not None:
        if not view.launches or not view.tenant_limited:
            return Fulfil(chosen)
        if view.tenant_shortage(chosen) is None:
            # What is fulfilled in one write cannot be taken back when others filled the limit at the same time.
            return Launch()
    # Else it takes a launch.
    if not view.launches:
        return Wait(view.no_ready_node(kind))
    if view.provider_paused is not None:
        return Wait(Reason(ReasonCode.PROVIDER_CIRCUIT_OPEN, view.provider_paused))
    # What keeps nodes ready must not pause the pool: it waits in the queue (Q-7, M-7).
    shortage = view.shortage if kind.min_ready else None
    if shortage is not None:
        return Wait(shortage) if view.objection is None else Decline(view.objection)
    return Launch()


def _could_begin(kind: RequestKind, head: NodeRequest, view: RequestView) -> bool:
    """Could this pool do something for a request now? A quick first look."""
    if head.reuse and view.ready.could_serve(head.node_types, kind):
        return True
    return view.launches and not view.paused and view.provider_paused is None


def _is_full(view: RequestView) -> bool:
    limit = view.max_concurrency
    return limit > 0 and view.launches_running >= limit


def _never(view: RequestView) -> Reason | None:
    """Why the pool can never serve the request."""
    if view.max_concurrency == 0:
        return NO_LAUNCHES
    # A handler that launches asks for all of it itself; here only where it will not be run.
    runs = view.launches and not view.paused and not _is_full(view) and view.provider_paused is None
    return view.basic_objection if runs else view.objection


def _no_room(kind: RequestKind, view: RequestView) -> Wait | None:
    if view.paused:
        return Wait(view.why_paused)
    if _is_full(view):
        limit = view.max_concurrency
        text = f"max-concurrency of {limit:g} launches is reached"
        return Wait(Reason(ReasonCode.WAIT_MAX_CONCURRENCY, text, {"limit": limit, "used": view.launches_running}))
    order = view.tenant_order
    if order is not None:
        return Wait(order)
    shortage = view.tenant_shortage()
    return None if shortage is None else Wait(shortage, first_of_tenant=True)


def _ready_nodes(kind: RequestKind, head: NodeRequest, view: RequestView) -> Sequence[Node] | None:
    """A ready node for each position of the request; None = there are not enough."""
    if not head.reuse or not view.ready.could_serve(head.node_types, kind):
        return None
    chosen = view.ready.choose(head.node_types, kind=kind)
    if len(chosen) < len(head.node_types):
        return None
    return [chosen[position] for position in range(len(head.node_types))]


# Where a request is in a pool, and which moves between these stages exist. `MOVES` is the whole picture; every other
# move raises `ImpossibleMove`.


class Stage(enum.Enum):
    """What a pool does with a request now."""

    #: In the queue of the pool.
    WAITING = "waiting"
    #: Not looked at before a certain time.
    DEFERRED = "deferred"
    #: Fast path: ready nodes are reserved, and the driver checks them.
    CHECKING = "checking"
    #: Fast path: the transaction that fulfils the request is under way.
    FULFILLING = "fulfilling"
    #: The write that locks the request and makes it `pending` is under way.
    LOCKING = "locking"
    #: Locked; ready nodes are taken, and launches are begun.
    GATHERING = "gathering"
    #: Locked; there is no room for another node now.
    PAUSED = "paused"
    #: Locked; every node is ready or is being launched.
    LAUNCHING = "launching"
    #: Locked; the request is declined, given back or dropped as soon as its launches have ended.
    ENDING = "ending"
    #: The pool has nothing to do with the request any more.
    DONE = "done"

    # By identity: members are keys of dictionaries on the way of each request, and Enum's own hash is a slow one.
    __hash__ = object.__hash__


#: Stages in which the pool holds the lock of the request.
LOCKED: Final = frozenset({Stage.GATHERING, Stage.PAUSED, Stage.LAUNCHING, Stage.ENDING})
#: Stages in which the handler of a request has more to gather.
UNFINISHED: Final = frozenset({Stage.WAITING, Stage.LOCKING, Stage.GATHERING, Stage.PAUSED})
#: Stages that end the work of a handler.
ENDED: Final = frozenset({Stage.DEFERRED, Stage.DONE})

#: Every move that exists, and when it is made.
MOVES: Final[Mapping[tuple[Stage, Stage], str]] = MappingProxyType(
    {
        (Stage.WAITING, Stage.DEFERRED): "another process holds its lock, or another pool is to serve it first",
        (Stage.WAITING, Stage.CHECKING): "there is a ready node for each label",
        (Stage.WAITING, Stage.LOCKING): "there is room to launch its nodes",
        (Stage.WAITING, Stage.DONE): "declined, taken by another pool, or removed",
        (Stage.DEFERRED, Stage.WAITING): "the time to look again has come",
        (Stage.DEFERRED, Stage.DONE): "taken by another pool, or removed",
        (Stage.CHECKING, Stage.FULFILLING): "the driver accepts every node",
        (Stage.CHECKING, Stage.WAITING): "the driver refuses a node",
        (Stage.CHECKING, Stage.DONE): "deleted",
        (Stage.FULFILLING, Stage.WAITING): "the request or a node was changed by another process",
        (Stage.FULFILLING, Stage.DEFERRED): "another process holds its lock, or it met a second conflict",
        (Stage.FULFILLING, Stage.DONE): "fulfilled in one transaction",
        (Stage.LOCKING, Stage.GATHERING): "locked and pending",
        (Stage.LOCKING, Stage.WAITING): "changed by another process",
        (Stage.LOCKING, Stage.DEFERRED): "another process holds its lock",
        (Stage.LOCKING, Stage.DONE): "deleted",
        (Stage.GATHERING, Stage.PAUSED): "there is no room for another node",
        (Stage.GATHERING, Stage.LAUNCHING): "every node is there or is being launched",
        (Stage.GATHERING, Stage.ENDING): "it ends, and launches still run",
        (Stage.GATHERING, Stage.DEFERRED): "given back",
        (Stage.GATHERING, Stage.DONE): "declined or removed",
        (Stage.PAUSED, Stage.GATHERING): "the driver ended the pause",
        (Stage.PAUSED, Stage.LAUNCHING): "room came for the nodes that were missing",
        (Stage.PAUSED, Stage.ENDING): "it ends, and launches still run",
        (Stage.PAUSED, Stage.DEFERRED): "given back",
        (Stage.PAUSED, Stage.DONE): "declined or removed",
        (Stage.LAUNCHING, Stage.PAUSED): "a launch was aborted",
        (Stage.LAUNCHING, Stage.ENDING): "it ends, and launches still run",
        (Stage.LAUNCHING, Stage.DEFERRED): "given back",
        (Stage.LAUNCHING, Stage.DONE): "fulfilled, declined or removed",
        (Stage.ENDING, Stage.DEFERRED): "its launches have ended, and it is given back",
        (Stage.ENDING, Stage.DONE): "its launches have ended, and it is declined or removed",
    }
)


class ImpossibleMove(RuntimeError):
    """A move that `MOVES` does not have."""


class Progress:
    """The stage of one request in one pool. Owned by the thread of the pool.

    :param request_id: for the text of errors.
    :param now: seconds since the epoch.
    """

    __slots__ = ("left", "on_move", "reason", "request_id", "since", "stage")

    def __init__(self, request_id: str, now: float) -> None:
        self.request_id = request_id
        self.stage = Stage.WAITING
        #: Time of the last move, seconds since the epoch.
        self.since = now
        #: Of the last move; None = the stage says it all.
        self.reason: Reason | None = None
        #: The stage before the last move.
        self.left = self.stage
        #: Called after each move, by the thread that makes it.
        self.on_move: Callable[[Progress], None] | None = None

    def move(self, target: Stage, now: float, reason: Reason | None = None) -> None:
        """Go to another stage.

        :param now: seconds since the epoch.
        :param reason: why, if the stage alone does not say it.
        :raises ImpossibleMove: `MOVES` has no such move; nothing is changed.
        """
        if (self.stage, target) not in MOVES:
            since = f"it is there since {now - self.since:.1f} s"
            raise ImpossibleMove(
                f"request {self.request_id} cannot go from {self.stage.value} to {target.value}: {since}"
            )
        self.left, self.stage = self.stage, target
        self.since = now
        self.reason = reason
        if self.on_move is not None:
            self.on_move(self)
