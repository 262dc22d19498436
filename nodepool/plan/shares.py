# SPDX-License-Identifier: Apache-2.0
"""Fair shares: whose request gets the next room that comes free, where tenants want more than there is (rules FS).

First what is counted: what each tenant uses (`Ledger`), and the room that its requests could use (`Place`). Then the
order in which requests are served (`FairOrder`). Last what `nodepool explain` and the tables say of it (`standings`).
All of it follows from ZooKeeper and the configuration, so all launchers find the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest, OrderKey, project_of
from nodepool.model.status import TenantShare
from nodepool.plan.triage import PoolInfo, RequestKind, RequestQueue

#: Resource -> how much of it.
Amounts: TypeAlias = Mapping[str, float]
#: Smaller differences of shares, and smaller amounts, come from adding fractions.
DIGITS: Final = 9
TINY: Final = 1e-6
#: With more sets of places, those that nobody uses any more are forgotten.
MANY_ROOMS: Final = 1000
#: A tenant that no entry of ``tenant-shares`` names, and requests without a tenant.
USUAL: Final = TenantShare()
#: What one node takes whose driver does not know better.
ONE: Final[Amounts] = {"instances": 1.0}


class TenantUse(NamedTuple):
    """What the nodes of a tenant use.

    :param places: where they are, as ``provider/pool``. ``projects``: the same use, by project.
    """

    amounts: Amounts
    places: frozenset[str]
    projects: Mapping[str | None, Amounts]


NO_USE: Final = TenantUse({}, frozenset(), {})


#: Tenant, project and place.
_Group: TypeAlias = tuple[str | None, str | None, str]


class Ledger:
    """What all nodes use, kept up to date node by node. Owned by one thread at a time."""

    def __init__(self) -> None:
        #: Node -> tenant (None = it waits for anybody), project, place, and what it uses.
        self._nodes: dict[str, tuple[str | None, str | None, str, Amounts]] = {}
        self._of_tenant: dict[_Group, dict[str, float]] = {}
        self._groups: dict[str, set[_Group]] = {}
        self._of_place: dict[str, dict[str, float]] = {}
        #: Tenant -> how often its use has changed; None -> how often nodes came or went.
        self.versions: Counter[str | None] = Counter()

    def put(self, node_id: str, node: Node | None, project: str | None = None) -> None:
        """Count a node as it is now. :param node: None = it is gone."""
        old = self._nodes.pop(node_id, None)
        new = None
        if node is not None:
            free = node.state == states.READY and not node.allocated_to
            uses = {name: value for name, value in (node.resources or {}).items() if _is_amount(value)} or ONE
            tenant = None if free else node.tenant_name or ""
            new = self._nodes[node_id] = tenant, project, f"{node.provider}/{node.pool}", uses
        if old == new:
            return
        for entry, sign in ((old, -1), (new, 1)):
            if entry is not None and entry[0] is not None:
                key = entry[:3]
                self._groups.setdefault(entry[0], set()).add(key)
                _add(self._of_tenant.setdefault(key, {}), entry[3], sign)
                self.versions[entry[0]] += 1
        if old is None or new is None or old[2:] != new[2:]:
            for entry, sign in ((old, -1), (new, 1)):
                if entry is not None:
                    _add(self._of_place.setdefault(entry[2], {}), entry[3], sign)
            self.versions[None] += 1

    def of(self, tenant: str) -> TenantUse:
        """What a tenant uses; ``""`` = requests without a tenant."""
        total: dict[str, float] = {}
        projects: dict[str | None, dict[str, float]] = {}
        places = set()
        for key in list(self._groups.get(tenant, ())):
            uses = {name: value for name, value in self._of_tenant[key].items() if value > TINY}
            if not uses:
                self._groups[tenant].discard(key)
                del self._of_tenant[key]
                continue
            _add(total, uses, 1)
            _add(projects.setdefault(key[1], {}), uses, 1)
            places.add(key[2])
        return TenantUse(total, frozenset(places), projects)

    def ids(self) -> list[str]:
        """Of all nodes."""
        return list(self._nodes)

    def present(self, place: str) -> Amounts:
        """What all nodes of a place take, free ones included."""
        return self._of_place.get(place, {})


def _add(sums: dict[str, float], uses: Amounts, sign: int) -> None:
    for name, value in uses.items():
        sums[name] = sums.get(name, 0) + sign * value


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def node_project(node: Node, request: NodeRequest | None) -> str | None:
    """For which project a node is; None = that is not known.

    :param request: that it is allocated to, if that exists.
    """
    data = node.user_data
    name = data.get("project_name") if isinstance(data, dict) else None
    return name if isinstance(name, str) else None if request is None else project_of(request)


class Place(NamedTuple):
    """A pool, whichever launchers serve it. :param limits: resource -> limit, of the pool and of its cloud."""

    labels: frozenset[str]
    limits: Amounts


def places_of(pools: Iterable[PoolInfo]) -> dict[str, Place]:
    """The places of some registered pools, as ``provider/pool``; launchers of old releases publish no limits."""
    found: dict[str, Place] = {}
    for pool in pools:
        known = found.get(pool.place, Place(frozenset(), {}))
        found[pool.place] = Place(known.labels | pool.labels, {**known.limits, **pool.limits})
    return found


def room_of(
    names: Iterable[str], places: Mapping[str, Place], present: Callable[[str], Amounts]
) -> tuple[Amounts, bool]:
    """How much there is in some places, of each resource that any of them limits; without limits, of instances.

    A place that does not limit a resource which others limit counts with what its nodes take of it.

    :param present: what the nodes of a place take.
    :return: also, whether the limits alone say it.
    """
    limits = {name: places[name].limits if name in places else {} for name in names}
    counts = {resource for found in limits.values() for resource in found} or {"instances"}

    def size(name: str, resource: str) -> float:
        return limits[name].get(resource, present(name).get(resource, 0))

    room = {resource: sum(size(name, resource) for name in limits) for resource in counts}
    return room, all(counts == found.keys() for found in limits.values())


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

    :param queue: requests that wait.
    :param use: what a tenant uses. ``present``: what the nodes of a place take.
    :param need: what a request for some labels needs.
    """

    def __init__(
        self,
        queue: RequestQueue,
        use: Callable[[str], TenantUse],
        present: Callable[[str], Amounts],
        need: Callable[[tuple[str, ...]], Amounts],
    ) -> None:
        self._queue, self._use, self._present, self._need = queue, use, present, need
        self._policy = Policy({})
        self._pools: Sequence[PoolInfo] | None = None
        self._places: Mapping[str, Place] = {}
        self._versions: Mapping[str | None, int] = {}
        self._kinds_version = self._present_version = -1
        #: Labels -> places that have all of them.
        self._able: dict[tuple[str, ...], frozenset[str]] = {}
        #: Tenant -> places that its waiting requests could use.
        self._wanted: dict[str, frozenset[str]] = {}
        #: Places -> their room. The same object as long as it is the same.
        self._rooms: dict[frozenset[str], tuple[Amounts, bool]] = {}
        #: Tenant -> what an earlier look found.
        self._known: dict[str, _Look] = {}
        #: Tenant, and tenant and project -> what was granted in this pass.
        self._granted: dict[tuple[str | None, ...], Amounts] = {}

    @property
    def on(self) -> bool:
        """Are there shares?"""
        return bool(self._policy.tenants)

    def begin_pass(self, policy: Policy, pools: Sequence[PoolInfo], versions: Mapping[str | None, int]) -> None:
        """Look at what is now.

        :param policy: and ``pools``, all registered ones: the same objects as long as they do not change.
        :param versions: of the uses of tenants, see `Ledger`.
        """
        self._granted.clear()
        same = policy is self._policy and self._kinds_version == self._queue.kinds_version
        self._policy, self._versions, self._kinds_version = policy, versions, self._queue.kinds_version
        if pools is not self._pools:
            self._pools, self._places, same = pools, places_of(pools), False
            self._able.clear()
        if not self.on:
            return
        if same and len(self._rooms) <= MANY_ROOMS:
            self._look_at_rooms()
            return
        self._known.clear()
        self._rooms.clear()
        wanted: dict[str, set[str]] = {}
        for bucket in self._queue.buckets():
            wanted.setdefault(bucket.kind.tenant_name or "", set()).update(self.able(bucket.kind.labels))
        self._wanted = {tenant: frozenset(names) for tenant, names in wanted.items()}

    def _look_at_rooms(self) -> None:
        version = self._versions.get(None, 0)
        if version == self._present_version:
            return
        self._present_version = version
        for names in [names for names, (_, fixed) in self._rooms.items() if not fixed]:
            now = room_of(names, self._places, self._present)
            if now != self._rooms[names]:
                self._rooms[names] = now

    def able(self, labels: tuple[str, ...]) -> frozenset[str]:
        """The places that have all of some labels."""
        found = self._able.get(labels)
        if found is None:
            names = (name for name, place in self._places.items() if place.labels.issuperset(labels))
            found = self._able[labels] = frozenset(names)
        return found

    def key(self, kind: RequestKind, order: OrderKey, ahead: int = 0) -> FairKey:
        """The place of a request in the order; the smallest is served first.

        :param ahead: so many more requests of its kind are served before it.
        """
        if not self.on:
            return order
        more = self._granted.get((kind.tenant_name,), {})
        if ahead:
            more = plus(more, self._need(kind.labels), ahead)
        return (*self.rank(kind, order, more), self._project_share(kind, ahead), *order[1:])

    def granted(self, kind: RequestKind) -> None:
        """A request of a kind is served from now on."""
        if self.on:
            for group in ((kind.tenant_name,), (kind.tenant_name, kind.project)):
                self._granted[group] = plus(self._granted.get(group, {}), self._need(kind.labels))

    def rank(self, kind: RequestKind, order: OrderKey, more: Amounts) -> Rank:
        """The begin of the key of a request if its tenant used so much more than it does; below 0 = less."""
        look = self._look(kind.tenant_name or "")
        share, outside = look.share, True
        if more:
            share = dominant(plus(look.use.amounts, more), look.room)[0] / look.mine.weight
        if look.mine.guaranteed:
            then = plus(plus(look.use.amounts, more), self._need(kind.labels))
            outside = any(then.get(name, 0) > limit for name, limit in look.mine.guaranteed.items())
        return order[0], outside, share

    def _project_share(self, kind: RequestKind, ahead: int) -> float:
        if not self._policy.by_project:
            return 0.0
        look = self._look(kind.tenant_name or "")
        used = plus(look.use.projects.get(kind.project, {}), self._granted.get((kind.tenant_name, kind.project), {}))
        return dominant(plus(used, self._need(kind.labels), ahead), look.room)[0]

    def _look(self, tenant: str) -> _Look:
        version, known = self._versions.get(tenant, 0), self._known.get(tenant)
        if known is not None and known.version == version and self._rooms.get(known.places, _NO_ROOM)[0] is known.room:
            return known
        use, mine = self._use(tenant), self._policy.tenants.get(tenant, USUAL)
        names = self._wanted.get(tenant, frozenset()) | use.places
        if names not in self._rooms:
            self._rooms[names] = room_of(names, self._places, self._present)
        room = self._rooms[names][0]
        share = dominant(use.amounts, room)[0] / mine.weight
        found = self._known[tenant] = _Look(version, use, names, room, mine, share)
        return found


class _Look(NamedTuple):
    """What is known of a tenant, of one version of its use."""

    version: int
    use: TenantUse
    places: frozenset[str]
    room: Amounts
    mine: TenantShare
    share: float


_NO_ROOM: Final[tuple[Amounts, bool]] = ({}, True)
