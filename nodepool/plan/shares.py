# SPDX-License-Identifier: Apache-2.0
"""Fair shares: whose request gets the next room that comes free, where tenants want more than there is (rules FS).

First what is counted: what each tenant uses (`Ledger`), and the room that its requests could use. Then the
order in which requests are served (`FairOrder`). Last the same for `nodepool explain` and the tables (`order_of`).
All of it follows from ZooKeeper and the configuration, so all launchers find the same.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from nodepool.model import states
from nodepool.model.event import amount, grouped
from nodepool.model.node import Node
from nodepool.model.record import is_finite
from nodepool.model.request import NodeRequest, OrderKey, project_of
from nodepool.model.status import TOGETHER, TenantShare
from nodepool.plan.triage import Bucket, PoolInfo, RequestKind, RequestQueue

#: Resource -> how much of it.
Amounts: TypeAlias = Mapping[str, float]
NOTHING: Final[Amounts] = {}
#: Smaller differences of shares, and smaller amounts, come from adding fractions.
DIGITS: Final = 9
TINY: Final = 1e-6
#: With more sets of places, those that are not used any more are forgotten.
MANY_ROOMS: Final = 1000
#: A tenant that no entry of ``tenant-shares`` names, and requests without a tenant.
USUAL: Final = TenantShare()
#: Key of a request's record that is served: ``pool``, and ``needs`` of all of its nodes. 11.0.0 does not know it.
SERVED_IN: Final = "served_in"
#: What one node takes whose driver does not know better.
ONE: Final[Amounts] = {"instances": 1}


class TenantUse(NamedTuple):
    """What the nodes of a tenant use.

    :param places: where they are, as ``provider/pool``. ``projects``: the same use, by project.
    :param lacking: place -> what requests of the tenant lack that launchers have begun to serve there.
    """

    amounts: Amounts
    places: frozenset[str]
    projects: Mapping[str | None, Amounts]
    lacking: Mapping[str, Amounts]


#: Tenant (None = it is for any tenant), project and place.
_Group: TypeAlias = tuple[str | None, str | None, str]


class Ledger:
    """What all nodes use, and what requests lack, kept up to date one by one. Owned by one thread at a time."""

    def __init__(self) -> None:
        #: Node -> who uses it, how much, and for which request.
        self._nodes: dict[str, tuple[_Group, Amounts, str | None]] = {}
        #: Request that is served -> for whom, and what it needs in all.
        self._begun: dict[str, tuple[_Group, Amounts]] = {}
        #: Request -> what it still lacks, and what its nodes use.
        self._lacking: dict[str, tuple[_Group, Amounts]] = {}
        self._held: dict[str, dict[str, float]] = {}
        self._of_group: dict[_Group, dict[str, float]] = {}
        self._groups: dict[str | None, set[_Group]] = {}
        self._of_place: dict[str, dict[str, float]] = {}
        #: Tenant -> how often its use has changed; None -> how often nodes came or went.
        self.versions: Counter[str | None] = Counter()

    def put(self, node_id: str, node: Node | None, request: NodeRequest | None) -> None:
        """Count a node as it is now.

        :param node: None = it does not exist any more. ``request``: that it is allocated to, if that exists.
        """
        old, new = self._nodes.pop(node_id, None), None
        if node is not None:
            free = node.state == states.READY and not node.allocated_to
            group = (None if free else node.tenant_name or "", _node_project(node, request), place_of(node))
            new = self._nodes[node_id] = group, uses_of(node), node.allocated_to
        if old == new:
            return
        for entry, sign in ((old, -1), (new, 1)):
            if entry is not None:
                self._count(*entry[:2], sign)
                _add(self._of_place.setdefault(entry[0][2], {}), entry[1], sign)
                if entry[2]:
                    _add(self._held.setdefault(entry[2], {}), entry[1], sign)
                    self._settle(entry[2])
        if old is None or new is None or (old[0][2], old[1]) != (new[0][2], new[1]):
            self.versions[None] += 1

    def put_request(self, request_id: str, request: NodeRequest | None) -> None:
        """Count a request as it is now: one that is served, and says where.

        :param request: None = it does not exist any more.
        """
        self._begun.pop(request_id, None)
        found = None if request is None or request.state != states.PENDING else request.extra.get(SERVED_IN)
        if request is not None and isinstance(found, dict) and isinstance(found.get("needs"), dict):
            needs = {name: value for name, value in found["needs"].items() if _is_amount(value)}
            group = (request.tenant_name or "", project_of(request), str(found.get("pool")))
            self._begun[request_id] = group, needs
        self._settle(request_id)

    def _settle(self, request_id: str) -> None:
        """Work out what a request lacks."""
        held = self._held.get(request_id, {})
        if not any(value > TINY for value in held.values()):
            self._held.pop(request_id, None)
        old, begun = self._lacking.pop(request_id, None), self._begun.get(request_id)
        lacks = {} if begun is None else {name: need - held.get(name, 0) for name, need in begun[1].items()}
        lacks = {name: value for name, value in lacks.items() if value > TINY}
        if begun is not None and lacks:
            self._lacking[request_id] = begun[0], lacks
        for entry in (old, self._lacking.get(request_id)):
            if entry is not None:
                self.versions[entry[0][0]] += 1

    def _count(self, group: _Group, uses: Amounts, sign: int) -> None:
        if group[0] is not None:
            self._groups.setdefault(group[0], set()).add(group)
            _add(self._of_group.setdefault(group, {}), uses, sign)
            self.versions[group[0]] += 1

    def of(self, tenant: str) -> TenantUse:
        """What a tenant uses; ``""`` = requests without a tenant."""
        total: dict[str, float] = {}
        projects: dict[str | None, dict[str, float]] = {}
        places = set()
        for group in list(self._groups.get(tenant, ())):
            uses = {name: value for name, value in self._of_group[group].items() if value > TINY}
            if not uses:
                self._groups[tenant].discard(group)
                del self._of_group[group]
                continue
            _add(total, uses, 1)
            _add(projects.setdefault(group[1], {}), uses, 1)
            places.add(group[2])
        lacking: dict[str, dict[str, float]] = {}
        for group, lacks in self._lacking.values():
            if group[0] == tenant:
                _add(lacking.setdefault(group[2], {}), lacks, 1)
        return TenantUse(total, frozenset(places), projects, lacking)

    def ids(self) -> tuple[set[str], set[str]]:
        """Of all nodes, and of all requests, that are counted."""
        return set(self._nodes), set(self._begun)

    def waiting_in(self, place: str) -> list[str]:
        """Ids of the requests that are served in a place and lack nodes."""
        return [request_id for request_id, (group, _) in self._lacking.items() if group[2] == place]

    def held_by(self, request_id: str) -> Amounts:
        """What the nodes of a request use."""
        return dict(self._held.get(request_id, {}))

    def present(self, place: str) -> Amounts:
        """What all nodes of a place take, free ones included."""
        return self._of_place.get(place, {})


def _add(sums: dict[str, float], uses: Amounts, sign: int) -> None:
    for name, value in uses.items():
        sums[name] = sums.get(name, 0) + sign * value


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value) and value > 0


def uses_of(node: Node) -> Amounts:
    """What a node uses, as far as its record says."""
    return {name: value for name, value in (node.resources or {}).items() if _is_amount(value)} or ONE


def place_of(node: Node) -> str:
    """As `PoolInfo.place`."""
    return f"{node.provider}/{node.pool}"


def _node_project(node: Node, request: NodeRequest | None) -> str | None:
    """For which project a node is; None = that is not known. Zuul writes it when the job begins."""
    data = node.user_data
    name = data.get("project_name") if isinstance(data, dict) else None
    return name if isinstance(name, str) else None if request is None else project_of(request)


def room_of(
    names: Iterable[str], limits: Mapping[str, Amounts], present: Callable[[str], Amounts]
) -> tuple[Amounts, bool]:
    """How much there is in some places, of each resource that any of them limits; without limits, of instances.

    A place that does not limit a resource which others limit counts with what its nodes take of it. Places of a
    provider that share a limit have no more than that together.

    :param limits: of places. ``present``: what the nodes of a place take.
    :return: also, whether the limits alone say it.
    """
    here = {name: limits.get(name, NOTHING) for name in names}
    resources = {resource for found in here.values() for resource in found}
    counts = {resource for resource in resources if not resource.startswith(TOGETHER)} or {"instances"}
    sharing = grouped(here, lambda name: name if here[name].keys() <= counts else name.rpartition("/")[0]).values()

    def size(name: str, resource: str) -> float:
        return here[name].get(resource, present(name).get(resource, 0))

    def together(pools: Sequence[str], resource: str) -> float:
        shared = [here[name].get(f"{TOGETHER}{resource}", math.inf) for name in pools]
        return min(*shared, sum(size(name, resource) for name in pools))

    room = {resource: sum(together(pools, resource) for pools in sharing) for resource in counts}
    return room, all(counts <= found.keys() for found in here.values())


def dominant(use: Amounts, room: Amounts) -> tuple[float, str]:
    """The largest part that a use takes of the resources of a room, 0 to 1, and of which resource."""
    parts = [(use[name] / size if size > 0 else 1.0, name) for name, size in room.items() if use.get(name, 0) > 0]
    part, name = max(parts, default=(0.0, "instances"))
    return round(part, DIGITS), name


def plus(one: Amounts, other: Amounts, times: float = 1) -> Amounts:
    """The sum of amounts, the second ones so many times."""
    return {name: one.get(name, 0) + times * other.get(name, 0) for name in {**one, **other}}


#: Begin of an order key: priority of the pipeline, is it outside of the guarantee, share of the tenant.
Rank: TypeAlias = tuple[str, bool, float]
#: `Rank`, share of the project, relative priority, sequence. Without shares it is an `OrderKey`.
FairKey: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Policy:
    """What is configured; without any tenant there are no shares.

    :param tenants: ``tenant-shares``. ``by_project``: ``fair-projects``.
    """

    tenants: Mapping[str, TenantShare]
    by_project: bool = False


class FairOrder:
    """The order of service of one pool. Owned by the thread of the pool; pure.

    Shares change with each request that is granted. So the keys of waiting requests only ever grow during a pass.

    :param queue: requests that wait. ``place``: the pool, as ``provider/pool``.
    :param use: what a tenant uses. ``present``: what the nodes of a place take.
    :param need: what a request for some labels needs.
    """

    def __init__(
        self,
        queue: RequestQueue,
        place: str,
        use: Callable[[str], TenantUse],
        present: Callable[[str], Amounts],
        need: Callable[[tuple[str, ...]], Amounts],
    ) -> None:
        self._queue, self._place, self._use, self._present, self._need = queue, place, use, present, need
        #: Are there shares?
        self.on = False
        self._policy = Policy({})
        self._pools: Sequence[PoolInfo] = ()
        #: Place -> limits. Launchers of old releases publish none.
        self._limits: dict[str, Amounts] = {}
        self._versions: Mapping[str | None, int] = {}
        self._kinds_version = self._present_version = -1
        #: Labels and tenant -> places that may serve such requests.
        self._able: dict[tuple[tuple[str, ...], str | None], frozenset[str]] = {}
        #: Tenant -> what waits, and places that this could use.
        self._waiting: dict[str, list[Bucket]] = {}
        self._wanted: dict[str, frozenset[str]] = {}
        #: Places -> their room. The same object as long as it is the same.
        self._rooms: dict[frozenset[str], tuple[Amounts, bool]] = {}
        #: Tenant -> what an earlier look found.
        self._known: dict[tuple[str, tuple[str, ...]], _Look] = {}
        #: Tenant -> version and share, as long as that alone orders its requests: most are asked for in each pass.
        self._plain: dict[str | None, tuple[int, float]] = {}
        #: Tenant -> labels of its first request that waits, when it was asked for or granted something last.
        self._firsts: dict[str, tuple[str, ...] | None] = {}
        #: Tenant, and tenant and project -> what was granted in this pass.
        self._granted: dict[tuple[str | None, ...], Amounts] = {}

    def begin_pass(self, policy: Policy, pools: Sequence[PoolInfo], versions: Mapping[str | None, int]) -> None:
        """Look at what is now.

        :param policy: and ``pools``, all registered ones: the same objects as long as they do not change.
        :param versions: of the uses of tenants, see `Ledger`.
        """
        self._granted.clear()
        self._firsts.clear()
        same = policy is self._policy and self._kinds_version == self._queue.kinds_version
        self._policy, self._versions, self._kinds_version = policy, versions, self._queue.kinds_version
        self.on = bool(policy.tenants)
        if pools is not self._pools:
            self._pools, same = pools, False
            # Several launchers may have the same one.
            self._limits = {pool.place: pool.limits for pool in sorted(pools, key=lambda pool: len(pool.limits))}
            self._able.clear()
        if not self.on:
            return
        if same and len(self._rooms) <= MANY_ROOMS:
            self._look_at_rooms()
            return
        self._known.clear()
        self._plain.clear()
        self._rooms.clear()
        self._waiting = grouped(self._queue.buckets(), lambda bucket: bucket.kind.tenant_name or "")
        self._wanted = {
            tenant: frozenset(name for bucket in buckets for name in self._able_for(bucket.kind))
            for tenant, buckets in self._waiting.items()
        }

    def _look_at_rooms(self) -> None:
        version = self._versions.get(None, 0)
        if version == self._present_version:
            return
        self._present_version = version
        for names in [names for names, (_, fixed) in self._rooms.items() if not fixed]:
            now = room_of(names, self._limits, self._present)
            if now != self._rooms[names]:
                self._rooms[names] = now
                self._plain.clear()

    def _able_for(self, kind: RequestKind) -> frozenset[str]:
        found = self._able.get((kind.labels, kind.tenant_name))
        if found is None:
            found = frozenset(pool.place for pool in self._pools if pool.serves(kind))
            # It may be one over several pools.
            found = found or frozenset(pool.place for pool in self._pools if pool.labels_for(kind) & {*kind.labels})
            self._able[kind.labels, kind.tenant_name] = found
        return found

    def key(self, kind: RequestKind, order: OrderKey, ahead: int = 0) -> FairKey:
        """The place of a request in the order; the smallest is served first.

        :param ahead: so many more requests of its kind are served before it.
        """
        if not self.on:
            return order
        plain = None if ahead else self._plain.get(kind.tenant_name)
        if plain is not None and plain[0] == self._versions.get(kind.tenant_name or "", 0):
            return order[0], True, plain[1], 0.0, order[1], order[2]
        return (*self.rank(kind, order, ahead), self._project_share(kind, ahead), *order[1:])

    def standing(self, tenant: str) -> Standing:
        """What a tenant uses of the room that its requests could use."""
        look = self._look(tenant, ())
        part, resource = dominant(look.use.amounts, look.room)
        used, room = look.use.amounts.get(resource, 0), look.room.get(resource, 0)
        return Standing(part, resource, used, room, look.mine.weight, look.room)

    def granted(self, kind: RequestKind) -> None:
        """A request of a kind is served from now on."""
        self._plain.pop(kind.tenant_name, None)
        self._firsts.pop(kind.tenant_name or "", None)
        for group in ((kind.tenant_name,), (kind.tenant_name, kind.project)):
            self._granted[group] = plus(self._granted.get(group, {}), self._need(kind.labels))

    def moved(self, kind: RequestKind) -> bool:
        """May the keys of requests of a kind have grown in this pass?"""
        return (kind.tenant_name,) in self._granted

    def rank(self, kind: RequestKind, order: OrderKey, ahead: int = 0) -> Rank:
        """The begin of the key. :param ahead: see `key`."""
        tenant = kind.tenant_name or ""
        look = self._look(tenant, self._first(tenant) or kind.labels)
        more = self._granted.get((kind.tenant_name,), NOTHING)
        if ahead:
            more = plus(more, self._need(kind.labels), ahead)
        elif not (more or look.mine.guaranteed or self._policy.by_project or len(self._waiting.get(tenant, ())) != 1):
            self._plain[kind.tenant_name] = look.version, look.share
        used = plus(look.used, more) if more else look.used
        return order[0], self._outside(kind, look, used), self._share(look, used) if more else look.share

    def rank_begun(self, kind: RequestKind, order: OrderKey, held: Amounts) -> Rank:
        """`rank` of a request that is served, as it was before. :param held: what its nodes use."""
        look = self._look(kind.tenant_name or "", kind.labels)
        # What others of the tenant lack does not count: they would be in the way of each other.
        used = plus(look.use.amounts, held, -1)
        return order[0], self._outside(kind, look, used), self._share(look, used)

    def _outside(self, kind: RequestKind, look: _Look, used: Amounts) -> bool:
        if not look.mine.guaranteed:
            return True
        then = plus(used, self._need(kind.labels))
        return any(then.get(name, 0) > limit for name, limit in look.mine.guaranteed.items())

    def _share(self, look: _Look, used: Amounts) -> float:
        # In the middle of being served: else tenants with large requests would get more than their part. But where many
        # tenants want room that alone may be more than any of them has: it would never be served.
        half = {name: min(need / 2, used.get(name, 0)) for name, need in self._need(look.labels).items()}
        return round(dominant(plus(used, half), look.room)[0] / look.mine.weight, DIGITS)

    def _first(self, tenant: str) -> tuple[str, ...] | None:
        """Labels of the tenant's first request that waits."""
        buckets = self._waiting.get(tenant, ())
        if len(buckets) == 1:
            return buckets[0].kind.labels
        if tenant not in self._firsts:
            first = min((bucket for bucket in buckets if len(bucket)), key=lambda bucket: bucket.head_key, default=None)
            self._firsts[tenant] = None if first is None else first.kind.labels
        return self._firsts[tenant]

    def _project_share(self, kind: RequestKind, ahead: int) -> float:
        if not self._policy.by_project:
            return 0.0
        look = self._look(kind.tenant_name or "", kind.labels)
        used = plus(look.use.projects.get(kind.project, {}), self._granted.get((kind.tenant_name, kind.project), {}))
        return dominant(plus(used, self._need(kind.labels), ahead), look.room)[0]

    def _look(self, tenant: str, labels: tuple[str, ...]) -> _Look:
        version, known = self._versions.get(tenant, 0), self._known.get((tenant, labels))
        if known is not None and known.version == version and self._rooms.get(known.places, _NO_ROOM)[0] is known.room:
            return known
        use, mine = self._use(tenant), self._policy.tenants.get(tenant, USUAL)
        names = self._wanted.get(tenant, frozenset()).union(use.places, use.lacking)
        if names not in self._rooms:
            self._rooms[names] = room_of(names, self._limits, self._present)
        used = plus(use.amounts, use.lacking.get(self._place, {}))
        look = _Look(version, use, used, names, self._rooms[names][0], mine, labels, 0.0)
        look = self._known[tenant, labels] = look._replace(share=self._share(look, used))
        return look


class Standing(NamedTuple):
    """A tenant beside others.

    :param part: the largest part of what there is of a resource, 0 to 1: ``used`` of ``room``.
    :param rooms: resource -> how much there is where its requests can be served.
    """

    part: float
    resource: str
    used: float
    room: float
    weight: float
    rooms: Amounts

    @property
    def text(self) -> str:
        """Such as ``13 of 48 instances (27%)``."""
        weight = "" if self.weight == 1 else f", weight {self.weight:g}"
        of = f"{amount(self.used, self.resource)} of {amount(self.room, self.resource)} {self.resource}"
        return f"{of} ({100 * self.part:.0f}%{weight})"


class _Look(NamedTuple):
    """What is known of a tenant, of one version of its use.

    :param used: with what is lacking here. ``labels``: of a request that is served next.
    """

    version: int
    use: TenantUse
    used: Amounts
    places: frozenset[str]
    room: Amounts
    mine: TenantShare
    labels: tuple[str, ...]
    share: float


_NO_ROOM: Final[tuple[Amounts, bool]] = ({}, True)


# The same for commands and pages, of what they have read.


def order_of(
    policy: Policy, pools: Sequence[PoolInfo], nodes: Iterable[Node], requests: Mapping[str, NodeRequest]
) -> FairOrder:
    """The order of all requests that wait, as any pool finds it. What nodes need follows from those that there are."""
    ledger, queue = Ledger(), RequestQueue()
    queue.by_project = policy.by_project
    for request_id, request in requests.items():
        ledger.put_request(request_id, request)
        if request.state == states.REQUESTED:
            queue.put(request)
    uses: dict[str, Amounts] = {}
    for node in nodes:
        ledger.put(node.key, node, requests.get(node.allocated_to or ""))
        uses.update(dict.fromkeys(node.type, uses_of(node)))

    def need(labels: tuple[str, ...]) -> Amounts:
        total: dict[str, float] = {}
        for label in labels:
            _add(total, uses.get(label, ONE), 1)
        return total

    order = FairOrder(queue, "", ledger.of, ledger.present, need)
    order.begin_pass(policy, pools, ledger.versions)
    return order


def served_before(order: FairOrder, request: NodeRequest, others: Iterable[NodeRequest]) -> Counter[str]:
    """Tenant -> how many of its requests that wait are served before one, as far as it can be seen now.

    :param others: that wait for the same pool.
    """
    by_tenant = grouped(others, lambda other: other.tenant_name or "")
    own = [other for other in by_tenant.pop(request.tenant_name or "", []) if other.order_key < request.order_key]
    mine = order.rank(RequestKind.of(request), request.order_key, len(own))
    found = Counter({request.tenant_name or "": len(own)})
    for tenant, theirs in by_tenant.items():
        theirs.sort(key=lambda other: other.order_key)

        def rank(number: int, theirs: Sequence[NodeRequest] = theirs) -> Rank:
            return order.rank(RequestKind.of(theirs[number]), theirs[number].order_key, number)

        found[tenant] = bisect.bisect_left(range(len(theirs)), mine, key=rank)
    return +found
