# SPDX-License-Identifier: Apache-2.0
"""What the pools of a launcher share.

First the pools of all launchers, and those that left a moment ago (rule A-15), then what operators hold back in this
launcher, then how many free nodes each pool has, then which pool serves a request first. Then the last events
(`EventRing`), and what makes them: nodes, maintenance records, images and reloads.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from nodepool.clock import monotonic, wall_time
from nodepool.driver.framework.quota_support import NodeTally
from nodepool.model import states
from nodepool.model.event import Event, What, clipped, grouped
from nodepool.model.status import TOGETHER, Maintenance, MaintenanceRecords, Mode, PoolComponent, ReloadStatus
from nodepool.plan import maintenance
from nodepool.plan.triage import PoolInfo, RequestKind, able_pools, first_choice, weights_of
from nodepool.zk.nodes import NodepoolCache

if TYPE_CHECKING:
    from nodepool.model.image import ImageBuild, ImageUpload, ImageView
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.zk.cache import RecordCache

#: How long a pool that went is waited for: its launcher may be on its way back.
ABSENT_SECONDS: Final = 60.0
#: Characters of the random end of a pool's id.
RANDOM_CHARACTERS: Final = 32


class PoolRegistry:
    """What the registry in ZooKeeper says, kept as long as nothing changes there.

    Any thread may ask. ``_lock`` guards all but ``_changes``; it is held for dictionary work only.

    :param pools: the cache of the registry.
    """

    def __init__(self, pools: RecordCache[PoolComponent]) -> None:
        self._pools = pools
        self._lock = threading.Lock()
        self._changes = 0
        self._known = -1
        self._registered: list[PoolInfo] = []
        #: Pools that went, and until when they are waited for.
        self._absent: dict[str, tuple[PoolInfo, float]] = {}
        #: Ids of pools that will not come back: our configuration does not name them any more.
        self._gone: set[str] = set()

    def changed(self) -> None:
        """The registry changed. For the cache thread only."""
        self._changes += 1

    def gone_for_good(self, pool_id: str) -> None:
        """One of our pools is not configured any more."""
        with self._lock:
            self._gone.add(pool_id)

    def registered(self) -> list[PoolInfo]:
        """All registered pools of all launchers."""
        with self._lock:
            self._update()
            return self._registered

    def absent(self) -> list[PoolInfo]:
        """Pools that were registered a moment ago, and whose launcher may be on its way back."""
        with self._lock:
            self._update()
            now = monotonic()
            self._absent = {pool_id: entry for pool_id, entry in self._absent.items() if now < entry[1]}
            return [pool for pool, _ in self._absent.values()]

    def _update(self) -> None:
        # Asked before the cache is: a change in between makes the next question count anew.
        changes = self._changes
        if self._known == changes:
            return
        before, until = self._registered, monotonic() + ABSENT_SECONDS
        self._registered = [
            PoolInfo(
                *(pool.id, pool.provider_name, frozenset(pool.supported_labels), pool.priority, pool.paused, pool.name),
                *(pool.allowed_tenants, pool.capacity, pool.limits),
            )
            for pool in self._pools.values()
        ]
        self._absent.update({pool.id: (pool, until) for pool in before if pool.id not in self._gone})
        present = grouped(self._registered, lambda pool: _place(pool.id))
        self._absent = {
            pool_id: entry
            for pool_id, entry in self._absent.items()
            if not any(_is_back(entry[0], pool) for pool in present.get(_place(pool_id), ()))
        }
        self._known = changes


def _is_back(absent: PoolInfo, pool: PoolInfo) -> bool:
    """Is this pool of the same place the absent one? Several launchers of a host may have pools of one name."""
    return absent.id == pool.id or absent.labels <= pool.labels


def _place(pool_id: str) -> str:
    """What stays the same of a pool's id when its launcher is started again: host, provider and pool."""
    place, _, end = pool_id.rpartition("-")
    return place if len(end) == RANDOM_CHARACTERS else pool_id


# `MaintenanceState`: what operators hold back in this launcher (rules MT).


class MaintenanceState:
    """Any thread may ask; nothing blocks.

    :param records: all that are known now.
    :param host_names: by which a record may mean this launcher's host; the first one is that of its registration.
    """

    def __init__(self, records: Callable[[], MaintenanceRecords], host_names: Sequence[str]) -> None:
        self._records = records
        self._host_names = tuple(dict.fromkeys(host_names))
        #: Set once, by a signal.
        self._own_drain: Maintenance | None = None
        #: The record that drained the launcher before it started.
        self._old_drain: Maintenance | None = None

    # -- the main thread --

    def note_start(self) -> None:
        """A record that drains the launcher already now does not end it: someone has started it all the same."""
        found = self.launcher
        self._old_drain = found if found is not None and found.mode is Mode.DRAIN else None

    def drain(self, reason: str) -> None:
        """Take nothing new from now on, until the process ends."""
        self._own_drain = Maintenance("launcher", self._host_names[0], Mode.DRAIN, reason, since=wall_time())

    # -- any thread --

    @property
    def launcher(self) -> Maintenance | None:
        """The record that holds for the whole launcher now."""
        return self._own_drain or maintenance.of_launcher(self._records(), self._host_names, wall_time())

    @property
    def ends_when_idle(self) -> bool:
        """Is the launcher to end as soon as it has finished what it does?"""
        found = self.launcher
        return found is not None and found.mode is Mode.DRAIN and found != self._old_drain

    def of_pool(self, provider_name: str, pool_name: str) -> Maintenance | None:
        """Why a pool takes nothing new; None = it does."""
        now = wall_time()
        return self._own_drain or maintenance.of_pool(self._records(), self._host_names, provider_name, pool_name, now)

    def of_labels(self) -> dict[str, Maintenance]:
        """The labels that no pool serves now."""
        return maintenance.of_labels(self._records(), wall_time())

    def holds(self, provider_name: str, pool_name: str, label: str) -> bool:
        """Is nothing launched for a label in a pool?"""
        return self.of_pool(provider_name, pool_name) is not None or label in self.of_labels()


# How many nodes, and free ready nodes, does each pool have, those of other launchers included?

#: Provider and name of a pool.
PoolKey = tuple[str | None, str | None]


class FreeCounts:
    """Only the cache thread changes it.

    Other threads call `could_serve`, whose answer may lack the latest event. It must be the first listener of the
    cache, so that it has each change before other listeners get it.
    """

    def __init__(self, nodes: RecordCache[Node]) -> None:
        self._nodes = nodes
        #: Free node -> its pool and its labels.
        self._known: dict[str, tuple[PoolKey, tuple[str, ...]]] = {}
        self._by_pool: dict[PoolKey, Counter[str]] = {}
        #: By pool, and by provider. They are counted when placement asks.
        self._tally = NodeTally(nodes, lambda node: [(node.provider, node.pool), (node.provider, TOGETHER)])
        nodes.add_listener(self._changed)

    def could_serve(self, pool: PoolInfo, wanted: Sequence[str]) -> bool:
        """Does a pool have enough free nodes of each wanted label? A quick first look: a node may have several."""
        counts = self._by_pool.get((pool.provider_name, pool.name))
        if counts is None or counts[""] < len(wanted):
            return False
        return all(counts[label] >= (wanted.count(label) if len(wanted) > 1 else 1) for label in wanted)

    def room(self, pool: PoolInfo, wanted: Sequence[str]) -> float | None:
        """How many nodes a pool could hand out or make; None = it does not publish what it can have."""
        capacity = pool.capacity_for(wanted)
        if capacity is None:
            return None
        key = (pool.provider_name, pool.name)
        free = self._by_pool.get(key)
        return max(0.0, capacity - self._tally.count(key)) + (0 if free is None else free[""])

    def room_together(self, pool: PoolInfo) -> float:
        """How many nodes all pools of a provider could hand out or make. :param pool: one of them that publishes it."""
        provider = pool.provider_name
        free = sum(counts[""] for key, counts in list(self._by_pool.items()) if key[0] == provider)
        return max(0.0, pool.capacity[TOGETHER] - self._tally.count((provider, TOGETHER))) + free

    def _changed(self, node_id: str) -> None:
        if not node_id:
            for known in {*self._known, *self._nodes.ids()}:
                self._look(known)
            return
        self._look(node_id)

    def _look(self, node_id: str) -> None:
        node = self._nodes.get(node_id)
        entry: tuple[PoolKey, tuple[str, ...]] | None = None
        locked = self._nodes.is_locked(node_id)
        if node is not None and node.state == states.READY and not node.allocated_to and not locked:
            # The empty label counts nodes.
            entry = ((node.provider, node.pool), ("", *dict.fromkeys(node.type)))
        old = self._known.get(node_id)
        if old == entry:
            return
        if old is not None:
            del self._known[node_id]
            self._by_pool[old[0]].subtract(old[1])
        if entry is not None:
            self._known[node_id] = entry
            self._by_pool.setdefault(entry[0], Counter()).update(entry[1])


# `Turns`: leaves requests to the pool that is their first choice, for a moment.
#
# Each request has one owner among the pools that may take it (`first_choice`). A pool that has room prefers its own
# requests, and passes over the others. It takes another's when
#
# * no other has ready nodes for it, or this pool is the first choice of those that have (at the end of its pass, so
#   that its own come first);
# * the owner, and who came after it, did nothing for `GRACE_SECONDS` each;
# * it was passed over `MAX_PASSED` times, or there is nothing of its own among the first `WINDOW` requests.

#: How long a pool whose turn it is may take. It takes some 20 ms when the machine is not busy.
GRACE_SECONDS: Final = 0.3
#: Who had its turn is remembered for so long; a request that comes up again later begins with its owner.
TURN_SECONDS: Final = 1.5
#: What was left is forgotten after this time.
FORGET_SECONDS: Final = 60.0
#: With more of them it is looked for old ones.
MANY: Final = 1000
#: So often a pool serves others before a request that it could serve as well.
MAX_PASSED: Final = 10
#: Requests that a pool leaves in one pass before it takes one at any rate: where all have the same share of them, and
#: where a small pool has one of many.
WINDOW: Final = 64
WINDOW_BY_ROOM: Final = 1000


class _PassedOver(NamedTuple):
    """A request that was left to another pool.

    :param times: how often. ``asked``: pools whose turn it was.
    """

    times: int
    when: float
    asked: tuple[str, ...]


class Turns:
    """Owned by the pool worker's thread.

    :param free: counts of free nodes of all pools.
    """

    def __init__(self, free: FreeCounts) -> None:
        self._free = free
        self._me = ""
        self._registered: Sequence[PoolInfo] = ()
        self._able: dict[RequestKind, list[PoolInfo]] = {}
        self._left: dict[str, _PassedOver] = {}
        self._many = MANY
        self._passed_over = 0
        self._by_room = True
        #: Requests whose owner has no node for them, while this pool has: passed over in this pass, or to be taken.
        self._ours_next: list[str] = []
        self._ours: set[str] = set()

    def begin_pass(self, me: str, registered: Sequence[PoolInfo], *, by_room: bool = True) -> None:
        """:param registered: the same object as long as the registry does not change.
        :param by_room: do pools with more room try more of the requests first?
        """
        if self._registered is not registered or len(self._able) > 10_000:
            self._able.clear()
        self._me, self._registered, self._by_room = me, registered, by_room
        self._passed_over = 0
        self._ours_next.clear()
        if len(self._left) > self._many:
            old = monotonic() - FORGET_SECONDS
            self._left = {request_id: left for request_id, left in self._left.items() if left.when > old}
            # Most may be young: not all of them are looked at in each pass.
            self._many = max(MANY, 2 * len(self._left))

    def of_others(self, kind: RequestKind, request: NodeRequest) -> Sequence[PoolInfo]:
        """The pools whose turn it is before this one; empty = it is this pool's turn.

        To be asked only when this pool could serve the request now. Changes nothing; see `pass_over`.
        """
        able = self._able.get(kind)
        if able is None:
            able = self._able[kind] = able_pools(kind, self._registered)
        request_id, now = request.key, monotonic()
        if len(able) < 2 or request_id in self._ours or self._passed_over >= WINDOW_BY_ROOM:
            return ()
        before = self._left.get(request_id, _PassedOver(0, now, ()))
        if before.times >= MAX_PASSED:
            return ()
        asked = before.asked if now < before.when + TURN_SECONDS else ()
        pools = [pool for pool in able if pool.id not in asked]
        weights = self._weights(pools, request)
        if self._passed_over >= WINDOW and not weights:
            return ()
        turns = self._turns(pools, request, weights)
        if not turns or turns[0].id == self._me:
            return ()
        return turns

    def pass_over(self, request: NodeRequest, turns: Sequence[PoolInfo]) -> None:
        """Note that a request is left to others; look again after `GRACE_SECONDS`.

        :param turns: the answer of `of_others`.
        """
        request_id, now = request.key, monotonic()
        before = self._left.get(request_id, _PassedOver(0, now, ()))
        asked = before.asked if now < before.when + TURN_SECONDS else ()
        if turns[-1].id == self._me:
            self._ours_next.append(request_id)
        self._left[request_id] = _PassedOver(before.times + 1, now, (*asked, *(pool.id for pool in turns)))
        self._passed_over += 1

    def _weights(self, pools: Sequence[PoolInfo], request: NodeRequest) -> Mapping[str, float]:
        """Each pool's share of such requests; empty = all the same."""
        if not self._by_room:
            return {}
        rooms = ((pool, self._free.room(pool, request.node_types)) for pool in pools)
        return weights_of(rooms, self._free.room_together)

    def _turns(self, pools: list[PoolInfo], request: NodeRequest, weights: Mapping[str, float]) -> list[PoolInfo]:
        """Whose turn it is: the owner; and if only others have ready nodes, one of these."""
        request_id = request.key
        ready = [pool for pool in pools if self._free.could_serve(pool, request.node_types)] if request.reuse else []
        owner = first_choice(request_id, [pool for pool in pools if not pool.paused] or pools, weights)
        turns = [owner, None if owner in ready else first_choice(request_id, ready)]
        return [pool for pool in turns if pool is not None]

    def end_pass(self) -> list[str]:
        """Requests that were passed over, but may be taken if there is still room after this pool's own."""
        self._ours = set(self._ours_next)
        return list(self._ours_next)


# `EventRing`: the last events of a launcher.

#: Events that are kept.
SIZE: Final = 2000
#: The same event of another request or node within so many seconds is counted, not kept again. It is looked for among
#: as many of the last events.
JOIN_SECONDS: Final = 60.0
JOIN_DEPTH: Final = 20
#: Kinds of subjects that come in hundreds for one cause.
_MANY: Final = frozenset({"request", "node"})


class EventRing:
    """Any thread may add and read; neither blocks. ``_lock`` is held for a few operations of the memory.

    :param size: how many events are kept; older ones are forgotten.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._host = socket.gethostname()
        self._lock = threading.Lock()
        self._events: deque[Event] = deque(maxlen=size)
        #: Called after each event, in the thread that adds it; must not block.
        self.on_event: Callable[[], None] = lambda: None

    def add(
        self,
        subject: str,
        what: What,
        text: str = "",
        code: str = "",
        *,
        at: float | None = None,
        actor: str | None = None,
        pool: str | None = None,
    ) -> None:
        """Note what happened. Parameters as for `Event`.

        :param at: None = now.
        :param actor: None = this launcher. ``pool``: of it, that did it.
        """
        by = actor or (f"{self._host} {pool}" if pool else self._host)
        self.put(Event(at or wall_time(), by, subject, what.value, code, text))

    def put(self, event: Event) -> None:
        """Note an event that is made already."""
        with self._lock:
            self._events.append(self._joined(replace(event, text=clipped(event.text))))
        self.on_event()

    def _joined(self, event: Event) -> Event:
        """An event together with one that it repeats, which is not kept any more."""
        if event.kind not in _MANY:
            return event
        for back in range(1, min(len(self._events), JOIN_DEPTH) + 1):
            earlier = self._events[-back]
            if event.at - earlier.at < JOIN_SECONDS and event.repeats(earlier):
                del self._events[-back]
                return event.joined_to(earlier)
        return event

    def last(self, count: int) -> list[Event]:
        """The newest events, the oldest of them first."""
        with self._lock:
            events = list(self._events)
        return events[-count:] if count else []


# What changes in the caches. Everything of these belongs to the thread of the cache. They are made before it follows
# ZooKeeper, so that nothing is missed.


#: States in which a build or an upload has ended, and what that is.
_ENDS = {states.READY: What.AVAILABLE, states.FAILED: What.FAILED}
#: What of a build or an upload is an event, which operator caused it, and when, in seconds since the epoch.
_End: TypeAlias = tuple[What, str | None, float | None]


class RecordEvents:
    """Notes events of what changes in caches: nodes that were put on hold, or that operators delete by commands; what
    operators pause, drain or quarantine, and its end; the pauses of images, what is asked for, and how builds and
    uploads end.
    """

    def __init__(self, cache: NodepoolCache, ring: EventRing) -> None:
        self._cache = cache
        self._ring = ring
        #: Ids of nodes on hold -> since when. One that was held, given back and held again while the connection was
        #: away is seen on hold all the time.
        self._held: dict[str, float | None] = {}
        #: Ids of nodes that an operator deletes.
        self._deleted: set[str] = set()
        self._maintained: MaintenanceRecords = {}
        #: Image -> is it paused, when was a build asked for (None = none is), and the ends of its builds and uploads.
        self._images: dict[str, tuple[bool, float | None, Mapping[str, _End]]] = {}
        self._images_begun = False
        cache.nodes.add_listener(self._node_changed)
        cache.maintenance.add_listener(self._maintenance_changed)
        cache.images.add_listener(self._image_changed)

    def _node_changed(self, node_id: str) -> None:
        node = self._cache.nodes.get(node_id)
        if node is None:
            self._deleted.discard(node_id)
        elif node.state == states.DELETING and node.deleted_by and node_id not in self._deleted:
            self._deleted.add(node_id)
            by = node.deleted_by
            self._ring.add(f"node {node_id}", What.CHANGED, f"delete by {by}", at=node.state_time, actor=by)
        if node is None or node.state != states.HOLD:
            self._held.pop(node_id, None)
        elif node_id not in self._held or self._held[node_id] != node.state_time:
            self._held[node_id] = node.state_time
            self._ring.add(f"node {node_id}", What.HELD, why_held(node), at=node.state_time)

    def _maintenance_changed(self) -> None:
        before, now = self._maintained, self._cache.maintenance.snapshot()
        self._maintained = now
        for key, record in now.items():
            old = before.get(key)
            if old is None or (old.mode, old.since, old.reason) != (record.mode, record.since, record.reason):
                self._ring.add(" ".join(key), What.MAINTENANCE_BEGAN, record.text, at=record.since)
        for key in [key for key in before if key not in now]:
            self._ring.add(" ".join(key), What.MAINTENANCE_ENDED)

    def _image_changed(self, image: str) -> None:
        view = self._cache.images.snapshot()
        for name in [image] if image else {*view.images, *self._images}:
            self._look_at(name, view.image(name))
        # What was there at the start is no event.
        self._images_begun = self._images_begun or self._cache.images.complete

    def _look_at(self, name: str, image: ImageView) -> None:
        ends = _ends_of(image)
        paused, asked, ended = self._images.get(name, (False, None, {}))
        self._images[name] = image.paused, image.build_requested, ends
        if not self._images_begun:
            return
        if image.paused != paused:
            what = What.MAINTENANCE_BEGAN if image.paused else What.MAINTENANCE_ENDED
            self._ring.add(f"image {name}", what, "it is not built" if image.paused else "it is built again")
        if image.build_requested is not None and image.build_requested != asked:
            self._ring.add(f"image {name}", What.CHANGED, "a build is asked for", at=image.build_requested)
        for text, (what, actor, at) in ends.items():
            if text not in ended:
                self._ring.add(f"image {name}", what, text, at=at, actor=actor)


def why_held(node: Node) -> str:
    """By whom and why a node is on hold, as far as its record says."""
    by = [f"by {node.hold_by}"] if node.hold_by else []
    if node.comment:
        return ": ".join([*by, str(node.comment)])
    return " ".join([*by, f"for job {node.hold_job}"] if node.hold_job else by)


def _ends_of(image: ImageView) -> dict[str, _End]:
    """Builds and uploads that have ended, or that an operator deletes, each with a text."""
    found: dict[str, _End] = {}

    def look(about: str, record: ImageBuild | ImageUpload) -> None:
        by = record.deleted_by
        if record.state in _ENDS:
            found[f"{about} is {record.state}"] = _ENDS[record.state], None, record.state_time
        elif record.state == states.DELETING and by is not None:
            found[f"{about}: delete by {by}"] = What.CHANGED, by, record.state_time

    for build in image.builds.values():
        if build.record is not None:
            builder = f" of {build.record.builder}" if build.record.builder else ""
            look(f"build {build.id}{builder}", build.record)
        for upload in build.all_uploads():
            about = f"upload {upload.id} of build {build.id} to {upload.provider_name}"
            look(about, upload)
            if upload.verdict:
                what = What.ROLLED_BACK if upload.rolled_back else What.PROMOTED
                found[f"{about}: {upload.verdict}"] = what, None, None
    return found


# `ReloadEvents`: what reloads of the configuration changed, or why they failed, as events.

#: Events of one reload; the log has all changes.
MAX_EVENTS: Final = 20


class ReloadEvents:
    """For the main thread; any thread may read ``last``.

    :param ring: where the events go.
    :param path: of the configuration file.
    """

    def __init__(self, ring: EventRing, path: str) -> None:
        self._ring = ring
        self._subject = f"configuration {os.path.basename(path)}"
        #: The last reload; None = there was none.
        self.last: ReloadStatus | None = None

    def ended(self, ok: bool, texts: Sequence[str]) -> None:
        """See `nodepool.runtime.daemon.Configuration.on_outcome`. Does not block."""
        shown = list(texts[:MAX_EVENTS]) or ["no key has another value"]
        if len(texts) > MAX_EVENTS:
            shown.append(f"and {len(texts) - MAX_EVENTS} more; the log of the launcher has all")
        self.last = ReloadStatus(wall_time(), ok, clipped("; ".join(shown)))
        for text in shown:
            self._ring.add(self._subject, What.RELOADED if ok else What.RELOAD_FAILED, text)
