# SPDX-License-Identifier: Apache-2.0
"""Quota of one provider: limits, use, room (rules Q-1 to Q-6; reference/driver 12).

First `QuotaSupport`, then limits as status records have them, then sums over all nodes, then which places of a label to
try: those without capacity are left out for a while, and the nodes of a request are kept in one zone (N-7). Last are
labels that a provider cannot serve.
"""

from __future__ import annotations

import abc
import logging
import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from logging import Logger, LoggerAdapter
from typing import Any, Final, Generic, Protocol, TypeGuard, TypeVar

from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.driver.config import ConfigPool, ProviderConfig
from nodepool.driver.framework.fact import Known
from nodepool.exceptions import RuntimeConfigurationException
from nodepool.guard import OnError
from nodepool.logconfig import ContextLogger
from nodepool.model import states
from nodepool.model.node import Node, QuotaInformation, first_shortage
from nodepool.model.reasons import Reason, ReasonCode, quota_used_up, too_small
from nodepool.model.request import NodeRequest
from nodepool.model.status import TOGETHER, LabelStatus, LimitStatus
from nodepool.zk.cache import RecordCache
from nodepool.zk.zookeeper import ZooKeeper

#: A node in such a state has, or will have, an instance.
LAUNCHING: Final = (states.INIT, states.BUILDING)
#: Seconds for which a provider's limits are not asked for again (Q-5).
LIMITS_AGE_SECONDS: Final = 300.0
#: The same after an error: a cloud that does not answer must not hold up the pool at every node.
ERROR_AGE_SECONDS: Final = 10.0
#: Longest wait for the limits. A pool that waits serves no one.
ANSWER_SECONDS: Final = 5.0


class QuotaSupport(abc.ABC):
    """Mix-in for providers that have quota. Needs ``provider`` (configuration) and ``zk``.

    ``_quota_lock`` guards the sums over nodes.
    """

    provider: ProviderConfig
    zk: ZooKeeper | None
    #: For status records: the limits that the cloud gave last, what others use, and when that was; None = nothing yet.
    _told: tuple[QuotaInformation, QuotaInformation, float] | None = None

    def __init__(self, *args: Any, **kw: Any) -> None:
        """:param args: not used; drivers written for 11.0.0 may pass on what they were given."""
        self._quota_log = ContextLogger(logging.getLogger("nodepool.driver.QuotaSupport"))
        self._quota_lock = threading.Lock()
        self._limits = Known(
            self._ask_for_limits,
            LIMITS_AGE_SECONDS,
            self._in_a_thread,
            error_seconds=ERROR_AGE_SECONDS,
            each_seconds=ANSWER_SECONDS,
        )
        self._tally: NodeTally | None = None
        self._broken_labels = BrokenLabels()

    @abc.abstractmethod
    def quotaNeededByLabel(self, label: str, pool: ConfigPool) -> QuotaInformation:
        """What one node of a label uses.

        :raises RuntimeConfigurationException: the label can never work.
        :raises NotKnown: ask again later.
        """

    @abc.abstractmethod
    def unmanagedQuotaUsed(self) -> QuotaInformation:
        """What others use of the same quota (Q-4)."""

    @abc.abstractmethod
    def getProviderLimits(self) -> QuotaInformation:
        """Ask the cloud for its limits; may block."""

    def invalidateQuotaCache(self) -> None:
        """Ask the cloud again next time, because it stated that a quota is used up."""
        self._limits.expire()

    def estimatedNodepoolQuota(self) -> QuotaInformation:
        """Limits minus unmanaged use, cached for 300 s. Blocks for a few seconds at most.

        An old value serves when the cloud gives an error or takes long.

        :raises NotKnown: there is none.
        """
        return self._limits.get().copy()

    def _ask_for_limits(self) -> QuotaInformation:
        with OnError(self._limits_unknown):
            name = self.provider.name
            limits = gateway.get_provider_limits(name, self)
            others = gateway.unmanaged_quota_used(name, self)
        self._told = limits.copy(), others, round(wall_time(), 3)
        limits.subtract(others)
        return limits

    def _limits_unknown(self, error: BaseException) -> None:
        self._quota_log.error("Provider %s: limits unknown", self.provider.name, exc_info=error)

    def _in_a_thread(self, call: Callable[[], None]) -> None:
        """Drivers without threads of their own have one for each question. Raises RuntimeError."""
        with OnError(
            lambda error: self._quota_log.error("Provider %s: limits not read: %s", self.provider.name, error)
        ):
            threading.Thread(target=call, name=f"Quota-{self.provider.name}", daemon=True).start()

    def estimatedNodepoolQuotaUsed(self, pool: ConfigPool | None = None) -> QuotaInformation:
        """What nodes in ZooKeeper use, in every state (Q-3).

        :param pool: only nodes of this pool; None = of the provider.
        """
        if self.zk is None:
            return QuotaInformation()
        # Nodes are counted where there is a cache: commands launch nothing.
        tally = self._tally_of(self.zk)
        used, unsized = (
            (QuotaInformation(), []) if tally is None else tally.used((None if pool is None else pool.name,))
        )
        for node in unsized:
            node_pool = self.provider.pools.get(node.pool or "")
            label = node.type[0] if node.type else None
            if node_pool is None or label is None or label not in self.provider.getSupportedLabels(node_pool.name):
                if node.state in LAUNCHING:
                    # Of a launcher with another configuration, which writes what the node uses a moment later.
                    used.add(QuotaInformation(instances=1))
                else:
                    self._quota_log.debug("Node %s: pool or label unknown, not counted", node.id)
                continue
            needed = self._needed(node_pool, [label])
            if needed is not None:
                used.add(needed)
        return used

    def _tally_of(self, zk: ZooKeeper) -> NodeTally | None:
        """Counts nodes by provider (group ``(None,)``) and by pool (``(name,)``); None = there is no cache."""
        if zk.cache is None:
            return None
        with self._quota_lock:
            if self._tally is None:
                self._tally = NodeTally(zk.cache.nodes, _groups_in(self.provider.name))
            return self._tally

    def nodeCount(self, pool_name: str | None = None) -> int:
        """How many nodes a pool has, or (None) the provider, in every state."""
        tally = None if self.zk is None else self._tally_of(self.zk)
        return 0 if tally is None else tally.count((pool_name,))

    def poolQuota(self, pool: ConfigPool) -> QuotaInformation:
        """The limits that the configuration sets for a pool (Q-18: volumes too)."""

        def limit(name: str) -> float:
            value = getattr(pool, name, None)
            return math.inf if value is None else value

        limits = QuotaInformation(
            instances=limit("max_servers"),
            cores=limit("max_cores"),
            ram=limit("max_ram"),
            volumes=limit("max_volumes"),
            default=math.inf,
            **{"volume-gb": limit("max_volume_gb")},
        )
        amounts = limits.quota["compute"]
        for key, value in (getattr(pool, "max_resources", None) or {}).items():
            # One that has a key of its own too, e.g. cores: both limits hold.
            amounts[str(key)] = min(amounts.get(str(key), math.inf), float(value))
        return limits

    def canEverFit(self, pool: ConfigPool, labels: Iterable[str]) -> bool:
        """Would these nodes fit together if nothing of ours ran? (Q-1, Q-14)"""
        needed = self._needed(pool, labels)
        return needed is not None and self._excess(pool, needed) is None

    def roomForOne(self, pool: ConfigPool, label: str) -> bool:
        """Is there room for one more node of a label now? (Q-2)"""
        needed = self._needed(pool, [label])
        return needed is not None and self._shortage(pool, needed) is None

    def poolHasRoom(self, pool: ConfigPool, label: str) -> bool:
        """Do the pool's own limits leave room for one more node of a label?"""
        needed = self._needed(pool, [label])
        used = self.estimatedNodepoolQuotaUsed(pool)
        return needed is not None and first_shortage(self.poolQuota(pool), used, needed) is None

    def shortage(self, pool: ConfigPool, label: str) -> Reason | None:
        """What is missing for one more node of a label now; None = nothing that the known limits show.

        Blocks as `roomForOne` does. Raises NotKnown.
        """
        needed = self._needed(pool, [label])
        return None if needed is None else self._shortage(pool, needed)

    def _shortage(self, pool: ConfigPool, needed: QuotaInformation) -> Reason | None:
        found = first_shortage(self.poolQuota(pool), self.estimatedNodepoolQuotaUsed(pool), needed)
        where = f"pool {pool.name}"
        if found is None:
            where = f"provider {self.provider.name}"
            limits, trouble = self._limits_or_trouble(pool)
            if limits is None:
                return Reason(ReasonCode.QUOTA_UNKNOWN, f"the limits of {where} are not known: {trouble}")
            found = first_shortage(limits, self.estimatedNodepoolQuotaUsed(), needed)
        if found is None:
            return None
        return quota_used_up(where, found.resource, limit=found.limit, used=found.used, needed=found.needed)

    def excess(self, pool: ConfigPool, labels: Iterable[str]) -> Reason | None:
        """The limit that these nodes together are above, even if nothing of ours ran; None = none is known.

        Blocks as `canEverFit` does. Raises NotKnown.
        """
        needed = self._needed(pool, labels)
        return None if needed is None else self._excess(pool, needed)

    def _excess(self, pool: ConfigPool, needed: QuotaInformation) -> Reason | None:
        where = f"pool {pool.name}"
        found = first_shortage(self.poolQuota(pool), QuotaInformation(), needed)
        if found is None:
            where = f"provider {self.provider.name}"
            # A cloud that does not answer is no reason to decline a request.
            limits, _ = self._limits_or_trouble(pool)
            found = None if limits is None else first_shortage(limits, QuotaInformation(), needed)
        return None if found is None else too_small(where, found.resource, limit=found.limit, needed=found.needed)

    def _limits_or_trouble(self, pool: ConfigPool) -> tuple[QuotaInformation | None, str]:
        """The provider's limits for a pool (Q-6); None = they are not known, and why (logged)."""
        if pool.ignore_provider_quota:
            return QuotaInformation(default=math.inf), ""
        try:
            return self.estimatedNodepoolQuota(), ""
        except Exception as error:  # noqa: BLE001 - logged where it happened
            # A driver may raise anything. It is no reason to decline: for who asks the limits are not known.
            return None, str(error)

    def _needed(self, pool: ConfigPool, labels: Iterable[str]) -> QuotaInformation | None:
        total = QuotaInformation()
        for label in labels:
            try:
                total.add(self.quotaNeededByLabel(label, pool))
            except NotImplementedError:
                # How a driver says that it does not know the size of a label: each node is one instance then.
                total.add(QuotaInformation(instances=1))
            except RuntimeConfigurationException as error:
                if self._broken_labels.add(label, error):
                    self._tell_broken(label, error)
                return None
        return total

    def _tell_broken(self, label: str, error: Exception) -> None:
        name = self.provider.name
        about = {"provider": name, "label": label, "code": ReasonCode.LABEL_BROKEN.value}
        self._quota_log.error("Provider %s: label %s can never work: %s", name, label, error, extra=about)

    @property
    def _made(self) -> bool:
        """Was it initialized? Providers written for 11.0.0 that have no quota, such as its static one, do not do so."""
        return "_broken_labels" in vars(self)

    def errorLabels(self) -> list[str]:
        """Labels whose need cannot be determined for a permanent reason (Q-14)."""
        return sorted(self._broken_labels.causes()) if self._made else []

    def labelErrors(self) -> Mapping[str, LabelStatus]:
        """Why labels cannot be served. Does not block."""
        return self._broken_labels.causes() if self._made else {}

    def limitStatus(self, pool_name: str) -> Sequence[LimitStatus]:
        """The limits of a pool and of the cloud, and what nodes use of them, as far as it is known. Does not block."""
        pool = self.provider.pools.get(pool_name)
        tally = None if self.zk is None or not self._made else self._tally_of(self.zk)
        if pool is None or tally is None:
            return []
        found = limits_of("pool", self.poolQuota(pool), _use_of(tally, pool_name))
        if self._told is not None and not pool.ignore_provider_quota:
            limits, others, asked_at = self._told
            found += limits_of("cloud", limits, _use_of(tally, None), others.quota["compute"], asked_at)
        return found

    def poolCapacity(self, pool_name: str) -> dict[str, float]:
        """By the known limits; nodes to come are like those that there are. See `Provider.poolCapacity`."""
        rooms: dict[str, float] = {}
        for limit in self.limitStatus(pool_name):
            nodes = self.nodeCount(pool_name if limit.scope == "pool" else None)
            each = 1 if limit.resource == "instances" else limit.used / max(1, nodes)
            if each > 0 and limit.limit is not None:
                left = (limit.limit - limit.used - limit.others) / each
                rooms[limit.scope] = min(left, rooms.get(limit.scope, left))
        found = {"": max(0.0, self.nodeCount(pool_name) + min(rooms.values()))} if rooms else {}
        if "cloud" in rooms and len(self.provider.pools) > 1:
            found[TOGETHER] = max(0.0, self.nodeCount() + rooms["cloud"])
        return found

    def getLabelQuota(self) -> dict[str, float]:
        """How many nodes of each label would still fit; unlimited when nothing limits them."""
        result: dict[str, float] = {}
        for pool in self.provider.pools.values():
            for label in self.provider.getSupportedLabels(pool.name):
                result[label] = max(result.get(label, 0), self._available(pool, label))
        return result

    def _available(self, pool: ConfigPool, label: str) -> float:
        needed = self._needed(pool, [label])
        if needed is None:
            return 0
        left = [self.poolQuota(pool)]
        left[0].subtract(self.estimatedNodepoolQuotaUsed(pool))
        if not pool.ignore_provider_quota:
            provider_left = self.estimatedNodepoolQuota()
            provider_left.subtract(self.estimatedNodepoolQuotaUsed())
            left.append(provider_left)
        counts: list[float] = [math.inf]
        for quota in left:
            for name, amount in needed.quota["compute"].items():
                if amount > 0:
                    available: Any = quota.quota["compute"].get(name, quota.default)
                    counts.append(math.inf if math.isinf(available) else max(0, available // amount))
        return min(counts)


def _use_of(tally: NodeTally, pool_name: str | None) -> QuotaInformation:
    """What nodes of a pool, or (None) of the provider use. Those whose use is not stored count as one instance."""
    used, unsized = tally.used((pool_name,))
    used.add(QuotaInformation(instances=len(unsized)))
    return used


def _groups_in(provider_name: str) -> Callable[[Node], tuple[Hashable, ...]]:
    """The groups of a node: its provider, and its pool, as tuples of one."""

    def groups(node: Node) -> tuple[Hashable, ...]:
        if node.provider != provider_name:
            return ()
        return ((None,),) if node.pool is None else ((None,), (node.pool,))

    return groups


# Limits as status records have them.


def limits_of(
    scope: str,
    limits: QuotaInformation,
    used: QuotaInformation,
    others: Mapping[str, float] | None = None,
    asked_at: float | None = None,
) -> list[LimitStatus]:
    """Limits of the configuration or of a cloud. Resources without a limit are left out.

    :param scope: as in `LimitStatus`. ``used``: by nodes of ours.
    :param others: what another uses, and when the cloud stated so; only of a cloud.
    """
    now = used.quota["compute"]
    return [
        LimitStatus(scope, name, limit, now.get(name, used.default), (others or {}).get(name, 0.0), asked_at)
        for name, limit in sorted(limits.quota["compute"].items())
        if math.isfinite(limit)
    ]


# Sums over all nodes that cost no more than what has changed since they were asked for last.

#: Sums of fractions (half a processor) are rounded: what is added and subtracted must come to nothing.
_DIGITS = 6
#: When so many nodes have changed and no one asked, all are counted anew at the next question.
_MANY = 10_000


class ChangedNodes:
    """Ids of nodes that changed, '' = any may have. Operations on a set are atomic."""

    def __init__(self) -> None:
        self._ids: set[str] = {""}

    def note(self, node_id: str) -> None:
        """For the cache thread."""
        if len(self._ids) >= _MANY:
            self._ids.clear()
            node_id = ""
        self._ids.add(node_id)

    def pending(self) -> set[str]:
        """What `take` would return now."""
        return self._ids.copy()

    def take(self) -> set[str]:
        found: set[str] = set()
        while self._ids:
            try:
                found.add(self._ids.pop())
            except KeyError:
                break  # cleared in between: '' follows
        return found


def follow(nodes: RecordCache[Any], reader: object) -> ChangedNodes:
    """Notes what changes from now on, for as long as ``reader`` is there; at first, any node, or record, may have."""
    changes = ChangedNodes()
    listener = changes.note
    nodes.add_listener(listener)
    weakref.finalize(reader, nodes.remove_listener, listener)
    return changes


class NodeTally:
    """What nodes use, by their stored ``resources``, in groups.

    Any thread may ask. ``_lock`` guards all but ``_changes``, which the cache thread fills; it is held for
    dictionary work only.

    :param nodes: the cache of nodes; it lets go of the tally when no one else holds it.
    :param groups: names of the groups that a node belongs to; must not block.
    """

    def __init__(self, nodes: RecordCache[Node], groups: Callable[[Node], Iterable[Hashable]]) -> None:
        self._nodes = nodes
        self._groups = groups
        self._lock = threading.Lock()
        self._changes = follow(nodes, self)
        self._shares: dict[str, tuple[tuple[Hashable, ...], dict[str, float]]] = {}
        self._sums: dict[Hashable, dict[str, float]] = {}
        self._counts: Counter[Hashable] = Counter()
        #: Nodes without ``resources``.
        self._unsized: dict[str, tuple[tuple[Hashable, ...], Node]] = {}

    def used(self, group: Hashable) -> tuple[QuotaInformation, list[Node]]:
        """What the nodes of a group use, and its nodes whose use is not stored. Does not block."""
        with self._lock:
            self._update()
            sums = self._sums.get(group, {})
            used = QuotaInformation.from_resources({name: round(value, _DIGITS) for name, value in sums.items()})
            return used, [node for groups, node in self._unsized.values() if group in groups]

    def count(self, group: Hashable) -> int:
        """How many nodes a group has. Does not block."""
        with self._lock:
            self._update()
            return self._counts[group]

    def _update(self) -> None:
        changed = self._changes.take()
        if "" in changed:
            changed = {*self._shares, *self._unsized, *self._nodes.ids()}
        for node_id in changed:
            self._forget(node_id)
            node = self._nodes.get(node_id)
            if node is not None:
                self._count(node_id, node)

    def _forget(self, node_id: str) -> None:
        unsized, _ = self._unsized.pop(node_id, ((), None))
        groups, resources = self._shares.pop(node_id, ((), {}))
        self._counts.subtract((*unsized, *groups))
        for group in groups:
            sums = self._sums[group]
            for name, value in resources.items():
                sums[name] -= value

    def _count(self, node_id: str, node: Node) -> None:
        groups = tuple(self._groups(node))
        if not groups:
            return
        self._counts.update(groups)
        if not node.resources:
            self._unsized[node_id] = (groups, node)
            return
        resources = QuotaInformation.from_resources(node.resources).quota["compute"]
        self._shares[node_id] = (groups, resources)
        for group in groups:
            sums = self._sums.setdefault(group, {})
            for name, value in resources.items():
                sums[name] = sums.get(name, 0) + value


# `ZonePlaces`: where a cloud had no capacity a while ago, and where the nodes of each request are made (N-7).
#
# A place is what a driver may choose among: a type or size, with a subnet or zone, and whether it is a spot instance.

P = TypeVar("P", bound=Hashable)

#: For so long a place without capacity is left alone.
REST_SECONDS: Final = 180.0
#: Requests that are remembered; those that are served are the latest ones.
MOST: Final = 1000


class ZonePlace(Protocol):
    """A combination of type or size and zone. It is a value."""

    @property
    def zone(self) -> str | None:
        """None = the cloud chooses."""

    def __hash__(self) -> int: ...


Z = TypeVar("Z", bound=ZonePlace)


class ZonePlaces(Generic[Z]):
    """Of one provider. The launches of all nodes leave places alone that had no capacity a while ago.

    The zone of a request with several nodes is that of its first node; another one as long as no node is there.
    Thread-safe, does not block; ``_lock`` guards the tables.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rest_until: dict[Z, float] = {}
        self._zone_of: dict[str, str] = {}
        #: Requests that have nodes in their zone.
        self._made: set[str] = set()

    @staticmethod
    def concerns(request: NodeRequest | None) -> TypeGuard[NodeRequest]:
        """Does a request have several nodes?"""
        return request is not None and len(request.node_types) > 1

    def zone_of(self, place: Z) -> str:
        """ "" = the cloud chooses."""
        return place.zone or ""

    def awake(self, places: Sequence[Z]) -> list[Z]:
        """Places in order, but for those that rest. If all rest, the one that has rested longest.

        :param places: at least one.
        """
        with self._lock:
            now = monotonic()
            self._rest_until = {place: until for place, until in self._rest_until.items() if until > now}
            found = [place for place in places if place not in self._rest_until]
            return found or [min(places, key=self._rest_until.__getitem__)]

    def to_try(self, places: Sequence[Z], request: NodeRequest | None, az: str | None) -> list[Z]:
        """As `awake`. What is in the zone of the other nodes of the request comes first.

        :param places: all that the label allows, at least one.
        :param az: the zone of a node that the request has already.
        """
        found = self.awake(places)
        wanted = az or None
        if wanted is None and self.concerns(request):
            first = self.zone_of(found[0])
            with self._lock:
                wanted = self._zone_of.setdefault(request.key, first)
                while len(self._zone_of) > MOST:
                    oldest = next(iter(self._zone_of))
                    del self._zone_of[oldest]
                    self._made.discard(oldest)
        return found if wanted is None else sorted(found, key=lambda place: self.zone_of(place) != wanted)

    def rests(self, place: Z) -> bool:
        """Had it no capacity a while ago?"""
        with self._lock:
            return self._rest_until.get(place, 0.0) > monotonic()

    def made(self, place: Z, request: NodeRequest | None) -> None:
        """A node of a request is there."""
        if self.concerns(request):
            zone = self.zone_of(place)
            with self._lock:
                if request.key not in self._made:
                    self._zone_of[request.key] = zone
                if self._zone_of[request.key] == zone:
                    self._made.add(request.key)

    def try_another(
        self, places: list[Z], request: NodeRequest | None, error: Exception, log: LoggerAdapter[Logger]
    ) -> bool:
        """The first of some places has no capacity: it is taken out, unless it is the only one. Is there another?

        :param request: of the node that was to be made there.
        """
        self.no_room_for(places[0], request)
        if len(places) == 1:
            return False
        log.info("No capacity for %s, trying %s: %s", places[0], places[1], error)
        del places[0]
        return True

    def no_room_for(self, place: Z, request: NodeRequest | None) -> None:
        """The cloud has no capacity there for a node of a request. Its zone is left, unless a node is there already."""
        with self._lock:
            self._rest_until[place] = monotonic() + REST_SECONDS
        if self.concerns(request):
            zone = self.zone_of(place)
            with self._lock:
                if self._zone_of.get(request.key) == zone and request.key not in self._made:
                    del self._zone_of[request.key]


# `BrokenLabels`: labels that a provider cannot serve, and why (rule Q-14).

#: What is shown of a label whose cause the driver does not tell.
UNKNOWN: Final = LabelStatus(ReasonCode.LABEL_BROKEN.value, "the driver says that it can never work here")


class BrokenLabels:
    """Any thread may call. Each change is one operation on a dictionary.

    :param code: of the reason, the same for all of them.
    """

    def __init__(self, code: ReasonCode = ReasonCode.LABEL_BROKEN) -> None:
        self._code = code
        self._causes: dict[str, LabelStatus] = {}

    def add(self, label: str, error: BaseException | str) -> bool:
        """A label turned out to be broken. Returns whether that is news.

        :param error: the cause, and what corrects it.
        """
        text = str(error)
        before = self._causes.get(label)
        if before is None or before.text != text:
            since = wall_time() if before is None else before.since
            self._causes[label] = LabelStatus(self._code.value, text, since)
        return before is None

    def discard(self, label: str) -> bool:
        """A label works. Returns whether that is news."""
        return self._causes.pop(label, None) is not None

    def causes(self) -> dict[str, LabelStatus]:
        """Label -> why it is broken, and since when."""
        return dict(self._causes)
