# SPDX-License-Identifier: Apache-2.0
"""The backing nodes of one provider and who is on them, as ZooKeeper has it (reference/zookeeper 5.6).

Nothing is remembered that is not in ZooKeeper, so a launcher that starts, and one that shares the provider with others,
sees the same. A slot belongs to the node that ``user_data`` of the backing node names, as long as that node's znode
exists; or to the node whose ``driver_data`` says so, which is all that older launchers write. First the view, then the
requests for backing nodes, then those out of service, then what launches want, then what the driver writes into nodes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import threading
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeGuard

from nodepool.clock import monotonic, wall_time
from nodepool.driver.framework.quota_support import ChangedNodes
from nodepool.driver.statemachine.adapter import Log
from nodepool.exceptions import LaunchStatusException, ZKConflict, ZKConnectionError, ZKException
from nodepool.guard import OnError
from nodepool.model import states
from nodepool.model.event import BACKING_OWNER
from nodepool.model.node import Node
from nodepool.model.reasons import Reason
from nodepool.model.record import InvalidRecord, is_finite
from nodepool.model.request import NodeRequest
from nodepool.plan import backing, maintenance
from nodepool.plan.backing import Backing, BackingKind
from nodepool.zk import paths
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper

#: Nodes in these states have not stored yet where they are.
NOT_PLACED = (states.INIT, states.BUILDING)


class Entry:
    """One backing node that is ours.

    :param contender: path of the contender by which the provider holds the lock.
    """

    def __init__(self, node: Node, data: BackingData, contender: str) -> None:
        self.id = node.key
        self.node = node
        self.data = data
        self.contender = contender
        self.kind: BackingKind | None = None
        #: By slot; as long as their znodes exist.
        self.holders: list[str | None] = []
        #: Seconds since the epoch; None = someone is on it.
        self.idle_since: float | None = None
        #: Everybody who is on it, or was when it was counted last.
        self.users: set[str] = set()


class BackingView:
    """Used by one thread, except for the cache's listener. `update` costs what has changed, not what there is.

    :param kinds: the kinds that are configured.
    :param is_held: has an operator taken out of service where a backing node with a label comes from?
    :param on_change: called in the cache thread when `update` will find something of interest; must not block.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        cache: NodepoolCache,
        provider_name: str,
        kinds: Collection[BackingKind],
        is_held: Callable[[Node, str], bool],
        on_change: Callable[[], None],
        log: Log,
    ) -> None:
        self._zk = zk
        self._nodes = cache.nodes
        self._provider_name = provider_name
        self._owner = owner_of(provider_name)
        #: As it stands in ``user_data``.
        self._owner_text = json.dumps(self._owner)
        self._kinds = kinds
        self._is_held = is_held
        self._on_change = on_change
        self.log = log
        self._changes = ChangedNodes()
        self.entries: dict[str, Entry] = {}
        #: node -> backing nodes on which it may have a slot.
        self._backings_of: dict[str, set[str]] = {}
        #: node -> (backing node, slot), as its ``driver_data`` says.
        self._places: dict[str, tuple[str, int]] = {}
        #: backing node -> nodes that say that they are on it.
        self._guests: dict[str, set[str]] = {}
        #: Nodes that the cache does not show although their znodes exist: unreadable, or very new.
        self._hidden: set[str] = set()
        #: node -> the backing request that it was made for.
        self._made_for: dict[str, str] = {}
        #: Contenders that are known to be ours.
        self._ours: dict[str, str] = {}
        self._nodes.add_listener(self._note)

    def close(self) -> None:
        """Follow the cache no more."""
        self._nodes.remove_listener(self._note)

    # -- cache thread --

    def _note(self, node_id: str) -> None:
        node = self._nodes.get(node_id)
        if node is None:
            # Always noted: a pass may be about to put this node where it is looked for here (see `is_behind`).
            self._changes.note(node_id)
            if self._is_known(node_id):
                self._on_change()
            return
        data = node.user_data
        if node.requestor != self._owner and not (isinstance(data, str) and self._owner_text in data):
            if node.provider == self._provider_name:
                # Where it is will be read when there is another reason to look.
                self._changes.note(node_id)
            return
        self._changes.note(node_id)
        self._on_change()

    def _is_known(self, node_id: str) -> bool:
        """Does it matter that this node is deleted? '' = any may be."""
        known = (self._backings_of, self.entries, self._places, self._made_for)
        return not node_id or any(node_id in nodes for nodes in known)

    # -- following --

    def update(self) -> None:
        """Take in what has changed. Blocks for a look at the lock of each backing node that is new."""
        changed = self._changes.take()
        if "" in changed:
            changed = {*self._nodes.ids(), *self.entries, *self._places, *self._backings_of, *self._made_for}
        dirty: set[str] = set()

        def once_more(_: BaseException) -> None:
            for node_id in changed | dirty:
                self._changes.note(node_id)

        # The connection breaks, perhaps.
        with OnError(once_more):
            for node_id in changed:
                node = self._nodes.get(node_id)
                self._hidden.discard(node_id)
                self._place(node_id, node, dirty)
                self._follow(node_id, node)
                dirty |= {node_id, *self._backings_of.get(node_id, ())}
            self._recount(dirty)

    def is_behind(self) -> bool:
        """Has a node been deleted since the last `update` that matters? To be asked at the end of a pass.

        A node may go after `update` found it and before it is known to be on a backing node. No one is woken then.
        """
        pending = self._changes.pending()
        return any(self._nodes.get(node_id) is None and self._is_known(node_id) for node_id in pending)

    def _place(self, node_id: str, node: Node | None, dirty: set[str]) -> None:
        """Note where a requested node says it is."""
        place = None
        if node is not None and node.provider == self._provider_name and node.state not in NOT_PLACED:
            place = place_of(node)
        old = self._places.pop(node_id, None)
        if old is not None:
            self._guests[old[0]].discard(node_id)
            dirty.add(old[0])
        if place is not None:
            self._places[node_id] = place
            self._guests.setdefault(place[0], set()).add(node_id)
            dirty.add(place[0])

    def _follow(self, node_id: str, node: Node | None) -> None:
        """Is this a backing node of ours, or is it none any more?"""
        self._made_for.pop(node_id, None)
        if node is not None and node.allocated_to is not None and node.requestor == self._owner:
            self._made_for[node_id] = node.allocated_to
        data = None if node is None or node.state != states.IN_USE else BackingData.decode(node.user_data)
        contender = None
        if node is not None and data is not None and data.owner == self._owner:
            contender = self._our_contender(node_id)
        entry = self.entries.get(node_id)
        if node is None or data is None or contender is None:
            if entry is not None:
                self._forget(entry)
        elif entry is None:
            self._add(node, data, contender)
        else:
            entry.contender = contender
            if (node.version or 0) > (entry.node.version or 0):
                if data.nodes != entry.data.nodes:
                    # Used, and perhaps free again before we heard of it: its idle time begins anew.
                    entry.idle_since = None
                entry.node, entry.data = node, data

    def _our_contender(self, node_id: str) -> str | None:
        """Path of the contender that holds a node's lock, if that is this provider."""
        names = self._nodes.contenders(node_id)
        if not names:
            return None
        if names[0] not in self._ours:
            holder = self._zk.nodes.lock_holder(node_id)
            if holder is None or holder[1] != self._owner:
                return None
            self.trust(holder[0])
            return holder[0]
        return self._ours[names[0]]

    def trust(self, contender: str) -> None:
        """This contender is ours: it need not be read."""
        self._ours[contender.rpartition("/")[2]] = contender

    def _add(self, node: Node, data: BackingData, contender: str) -> None:
        entry = self.entries[node.key] = Entry(node, data, contender)
        kinds = (kind for kind in self._kinds if kind.label == data.label and kind.backing_label in node.type)
        entry.kind = next(kinds, None)
        if data.idle_since is not None:
            entry.idle_since = min(data.idle_since, wall_time())

    def _forget(self, entry: Entry) -> None:
        """T-12."""
        left = sorted(node_id for node_id in entry.users if self._is_on(node_id, entry))
        if left:
            self.log.warning(
                "Backing node %s does not exist any more, although nodes are on it: %s", entry.id, ", ".join(left)
            )
        self.drop(entry)

    def drop(self, entry: Entry) -> None:
        """It is not ours any more."""
        self.entries.pop(entry.id, None)
        self._ours.pop(entry.contender.rpartition("/")[2], None)
        self._unlink(entry)

    # -- who is where --

    def _unlink(self, entry: Entry) -> None:
        for node_id in entry.users:
            backings = self._backings_of.get(node_id, set())
            backings.discard(entry.id)
            if not backings:
                self._backings_of.pop(node_id, None)
        entry.users = set()

    def _recount(self, backing_ids: Iterable[str]) -> None:
        for backing_id in backing_ids:
            entry = self.entries.get(backing_id)
            if entry is not None:
                self.count(entry)
            elif not self._guests.get(backing_id, True):
                del self._guests[backing_id]

    def count(self, entry: Entry) -> None:
        """See anew who is on a backing node."""
        guests = self._guests.get(entry.id, set())
        entry.holders = [node_id if self._is_on(node_id, entry) else None for node_id in entry.data.nodes]
        for node_id in sorted(guests):
            slot = self._places[node_id][1]
            if 0 <= slot < len(entry.holders) and entry.holders[slot] is None:
                entry.holders[slot] = node_id
        living = {node_id for node_id in entry.holders if node_id is not None} | guests
        if living:
            entry.idle_since = None
        elif entry.idle_since is None:
            entry.idle_since = wall_time()
        self._unlink(entry)
        # Those who are deleted, too: should they come back, e.g. because they are readable again, they count.
        entry.users = living | {node_id for node_id in entry.data.nodes if node_id is not None}
        for node_id in entry.users:
            self._backings_of.setdefault(node_id, set()).add(entry.id)

    def _is_on(self, node_id: str | None, entry: Entry) -> bool:
        if node_id is None:
            return False
        if node_id in self._hidden:
            return True
        place = self._places.get(node_id)
        if place is not None and place[0] != entry.id:
            return False
        node = self._nodes.get(node_id)
        return node is not None and node.provider == self._provider_name

    def is_free(self, entry: Entry, slots: Iterable[int]) -> bool:
        """Is it sure that no one has these slots? Blocks for a look at the znodes that the cache says are deleted."""
        gone = []
        for slot in slots:
            node_id = entry.data.nodes[slot]
            if entry.holders[slot] is not None:
                return False
            # One that the cache has is not here.
            if node_id is not None and self._nodes.get(node_id) is None:
                gone.append(node_id)
        hidden = self._zk.nodes.existing(gone)
        if hidden:
            self._hidden |= hidden
            self.count(entry)
        return not hidden

    def check_hidden(self) -> None:
        """Look again for nodes that the cache does not show. Blocks."""
        for node_id in self._hidden - self._zk.nodes.existing(self._hidden):
            self._changes.note(node_id)

    def backing_of(self, node_id: str) -> tuple[Entry, int] | None:
        """Where a node has a slot."""
        for backing_id in self._backings_of.get(node_id, ()):
            entry = self.entries.get(backing_id)
            if entry is not None and node_id in entry.holders:
                return entry, entry.holders.index(node_id)
        return None

    def guests_of(self, backing_id: str) -> set[str]:
        """Nodes that say that they are on a backing node, whether that is ours or not."""
        return set(self._guests.get(backing_id, ()))

    def has_node_for(self, request_id: str) -> bool:
        """Has anybody begun to make a node for a backing request?"""
        return request_id in self._made_for.values()

    # -- writing --

    def write(self, entry: Entry, data: BackingData) -> bool:
        """Store ``user_data``; False = another wrote first, look again."""
        node = entry.node.copy()
        node.user_data = data.encode()
        try:
            self._zk.nodes.save(node)
        except ZKConflict as conflict:
            self.log.info("Backing node %s: %s", entry.id, conflict)
            self.refresh(entry)
            return False
        entry.node, entry.data = node, data
        self.count(entry)
        return True

    def refresh(self, entry: Entry) -> None:
        """Read a backing node now: a cache may be a second behind with a node that is locked."""
        self._follow(entry.id, self._zk.getNode(entry.id))
        if entry.id in self.entries:
            self.count(entry)

    def backings(self) -> list[Backing]:
        """All of them, for a decision."""
        now = wall_time()
        return [
            Backing(
                entry.id,
                entry.kind,
                tuple(entry.holders),
                entry.data.failed,
                now - entry.data.launched,
                None if entry.idle_since is None else now - entry.idle_since,
                entry.kind is not None and self._is_held(entry.node, entry.kind.backing_label),
            )
            for entry in self.entries.values()
        ]


# `BackingRequests`: the node requests by which a provider gets backing nodes (rules T-1 to T-4).

PRIORITY: Final = "100"
#: Seconds from the end of a request until it is deleted. Kazoo's TreeCache, which Zuul uses, may keep a znode for ever
#: that is deleted while the cache still reads its last change.
LINGER_SECONDS: Final = 1.0


@dataclasses.dataclass
class OpenRequest:
    """A request of ours that has not ended.

    :param claim_until: its node could not be had at once; until then it is tried again (monotonic seconds).
    """

    id: str
    kind: BackingKind
    claim_until: float | None = None


class BackingRequests:
    """Requests are ephemeral: they go with our session. Used by one thread, except for the cache's listener.

    :param owner: goes into the requests as their requestor.
    :param on_change: called in the cache thread when one of ours changed; must not block.
    """

    def __init__(
        self, zk: ZooKeeper, cache: NodepoolCache, owner: str, log: Log, on_change: Callable[[], None]
    ) -> None:
        self._zk = zk
        self._owner = owner
        self.log = log
        self._on_change = on_change
        #: Oldest first.
        self.open: dict[str, OpenRequest] = {}
        #: Requests that have ended, and when they are to be deleted.
        self._ended: dict[str, float] = {}
        #: event id -> kind, of requests whose creation gave no answer.
        self._unanswered: dict[str, BackingKind] = {}
        self._cache = cache.requests
        self._cache.add_listener(self._note)

    def _note(self, request_id: str) -> None:
        if not request_id or request_id in self.open:
            self._on_change()

    def of(self, kind: BackingKind) -> list[str]:
        """Ids of open requests for one kind of backing node, oldest first."""
        return [request.id for request in self.open.values() if request.kind == kind]

    def submit(self, kind: BackingKind, waiting: int) -> str:
        """Ask for one more backing node; blocks for a round trip.

        :param waiting: how many nodes it is for.
        """
        request = NodeRequest()
        request.state = states.REQUESTED
        request.node_types = [kind.backing_label]
        request.requestor = self._owner
        request.event_id = uuid.uuid4().hex
        try:
            self._zk.storeNodeRequest(request, PRIORITY)
        except ZKConnectionError:
            self._unanswered[request.event_id] = kind
            raise
        request_id = request.key
        self.open[request_id] = OpenRequest(request_id, kind)
        self.log.info(
            "Request %s for a backing node of label %s: %d node(s) of label %s wait",
            request_id,
            kind.backing_label,
            waiting,
            kind.label,
        )
        return request_id

    def find_unanswered(self) -> None:
        """After a lost connection: is there a request of whose creation we have not heard? Needs a complete cache."""
        if not self._unanswered:
            return
        for request in self._zk.nodeRequestIterator():
            kind = self._unanswered.get(request.event_id or "")
            if kind is not None and request.requestor == self._owner and request.id is not None:
                self.open[request.id] = OpenRequest(request.id, kind)
        self._unanswered.clear()

    def look(self, request_id: str) -> NodeRequest | None:
        """The request as it is now; None = it is deleted. Blocks only if the cache does not have it."""
        return self._cache.get(request_id) or self._zk.getNodeRequest(request_id)

    def end(self, request_id: str) -> None:
        """Nothing more is wanted of a request that has ended: it will be deleted."""
        self.open.pop(request_id, None)
        self._ended[request_id] = monotonic() + LINGER_SECONDS

    def cancel(self, request_id: str) -> None:
        """Take back a request that no one waits for; blocks for a round trip."""
        self.log.info("Withdrawing request %s: no node waits for it any more", request_id)
        self._delete(request_id)
        self.open.pop(request_id, None)

    def delete_ended(self) -> float:
        """Delete what is due; seconds until the next is."""
        now = monotonic()
        for request_id in [request_id for request_id, when in self._ended.items() if when <= now]:
            self._delete(request_id)
            del self._ended[request_id]
        return min((when - now for when in self._ended.values()), default=float("inf"))

    def _delete(self, request_id: str) -> None:
        self._zk.deleteNodeRequest(NodeRequest(id=request_id))

    def close(self) -> None:
        """Take everything back. What cannot be deleted goes with the session."""
        self._cache.remove_listener(self._note)
        self.find_unanswered()
        for request_id in [*self.open, *self._ended]:
            try:
                self._delete(request_id)
            except ZKException as error:
                self.log.debug("Request %s: %s", request_id, error)
        self.open.clear()
        self._ended.clear()


# `BackingHolds`: what operators have taken out of service, as far as backing nodes are concerned (T-13, T-14).

#: So long a pool is not expected to make a backing node that it declined to make.
DECLINED_SECONDS: Final = 60.0


class BackingHolds:
    """Notes are written by one thread; any thread may ask. Nothing blocks."""

    def __init__(self, zk: ZooKeeper, cache: NodepoolCache) -> None:
        self._zk = zk
        self._maintenance = cache.maintenance
        #: Pools that declined to make a backing node, and until when that counts.
        self._declined: dict[BackingKind, tuple[frozenset[str], float]] = {}
        self._free: frozenset[BackingKind] = frozenset()

    @property
    def active(self) -> bool:
        """Is anything out of service at all?"""
        return bool(self._maintenance.snapshot())

    def note_declined(self, kind: BackingKind, pool_ids: Collection[str]) -> None:
        """These pools declined a backing request that is still open; empty = there is none, or it was served."""
        if pool_ids:
            self._declined[kind] = (frozenset(pool_ids), wall_time() + DECLINED_SECONDS)
        else:
            self._declined.pop(kind, None)

    def note_free(self, kinds: frozenset[BackingKind]) -> bool:
        """There are free slots on backing nodes of these kinds.

        :return: has that changed?
        """
        changed, self._free = kinds != self._free, kinds
        return changed

    def of_labels(self, kinds: Iterable[BackingKind]) -> dict[str, Reason]:
        """Labels for which there is no slot, and no one makes a backing node now."""
        records = self._maintenance.snapshot()
        # Those of static hosts keep no pool from making a node, and may stay for weeks.
        if all(kind == "host" for kind, _ in records):
            return {}
        now, pools = wall_time(), self._zk.getRegisteredPools()
        found = {}
        for kind in kinds:
            if kind in self._free:
                continue
            declined, until = self._declined.get(kind, (frozenset[str](), 0.0))
            declined_by = declined if now < until else frozenset[str]()
            held = backing.makers_held(kind.backing_label, pools, declined_by, records, now)
            if held:
                found[kind.label] = backing.reason(kind.label, kind.backing_label, held)
        return found

    def of_node(self, node: Node, backing_label: str) -> bool:
        """Does a backing node get no new nodes?"""
        return maintenance.of_node(self._maintenance.snapshot(), node, backing_label, wall_time()) is not None

    def next_end(self) -> float:
        """Seconds until a record ends by itself."""
        now = wall_time()
        end = maintenance.next_end(self._maintenance.snapshot(), now)
        return math.inf if end is None else end - now


# What launches and deletions want of the `SlotAllocator`.


@dataclasses.dataclass(eq=False)
class SlotRequest:
    """One node that waits for a slot.

    :param wake: makes its launch look at ``place`` and ``error``; any thread, does not block.
    :param request_id: of the backing request that it waits for.
    :param place: backing node and slot.
    """

    node_id: str
    kind: BackingKind
    wake: Callable[[], None]
    log: Log
    request_id: str | None = None
    place: tuple[Node, int] | None = None
    error: Exception | None = None


#: Those who wait, by kind and node, in the order in which they came.
Waiting = dict[BackingKind, dict[str, SlotRequest]]


class SlotRequests:
    """What launches and deletions want. Any thread: what changes a table is one operation, or has ``_lock``, which is
    not held across calls to others.

    :param on_change: called when there is something to do; must not block.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._waiting: dict[str, SlotRequest] = {}
        #: Those who wait no longer if no one has begun to make their backing node.
        self._stopped: set[str] = set()
        #: Nodes that need their slot no more although their znodes stay, and what is called when it is free.
        self.given_back: dict[str, Callable[[], None]] = {}
        #: node -> backing node, as long as its launch goes on.
        self._placed: dict[str, str] = {}
        #: T-11: nodes on whose backing nodes nothing answers, and the backing node of each; None = the one where it has
        #: its slot now.
        self.failed_scans: dict[str, str | None] = {}

    @property
    def busy(self) -> bool:
        """Does anybody want anything?"""
        return bool(self._waiting or self.given_back or self.failed_scans)

    # -- waiting for a slot --

    def add(self, slot_request: SlotRequest) -> None:
        """A node waits; what it waited for before is forgotten."""
        # `_answer` may take out the one before just now.
        with self._lock:
            self._waiting[slot_request.node_id] = slot_request
        self._on_change()

    def waiting(self) -> Waiting:
        """Those who wait now."""
        found: Waiting = {}
        for node_id, slot_request in list(self._waiting.items()):
            found.setdefault(slot_request.kind, {})[node_id] = slot_request
        return found

    def first(self, kind: BackingKind, count: int) -> list[SlotRequest]:
        """At most so many of those who wait, in their order."""
        return list(self.waiting().get(kind, {}).values())[:count]

    def place(self, slot_request: SlotRequest, backing: Node, slot: int) -> None:
        """The node of a slot request has a slot."""
        slot_request.log.info("Slot %d of backing node %s", slot, backing.id)
        slot_request.place = (backing, slot)
        with self._lock:
            # Not of a launch that has ended meanwhile: no one would take it out again.
            if self._waiting.get(slot_request.node_id) is slot_request:
                self._placed[slot_request.node_id] = backing.key
        self._answer(slot_request)

    def fail(self, slot_request: SlotRequest, error: Exception) -> None:
        """The node of a slot request will not get a slot now."""
        slot_request.error = error
        self._answer(slot_request)

    def fail_request(self, request_id: str, text: str) -> None:
        """T-4: those who wait for a backing request will not get a slot now."""
        for slot_request in list(self._waiting.values()):
            if slot_request.request_id == request_id:
                self.fail(slot_request, LaunchStatusException(text))

    def _answer(self, slot_request: SlotRequest) -> None:
        with self._lock:
            if self._waiting.get(slot_request.node_id) is slot_request:
                del self._waiting[slot_request.node_id]
        slot_request.wake()

    def stop_waiting(self, node_ids: Collection[str]) -> None:
        """These nodes shall not go on waiting for a backing node that no one has begun to make."""
        with self._lock:
            self._stopped.update(node_ids)
        self._on_change()

    def take_stopped(self) -> set[str]:
        """Nodes for which this was asked since the last time."""
        with self._lock:
            stopped, self._stopped = self._stopped, set()
        return stopped

    def drop(self, node_id: str) -> None:
        """A node does not wait any more: its launch has ended."""
        with self._lock:
            self._waiting.pop(node_id, None)
            self._placed.pop(node_id, None)
        self._on_change()

    # -- giving a slot back --

    def give_back(self, node_id: str, wake: Callable[[], None]) -> None:
        """A node needs its slot no more, although its znode stays.

        :param wake: called when it is in ``given_back`` no more.
        """
        with self._lock:
            self._waiting.pop(node_id, None)
            self.given_back[node_id] = wake
        self._on_change()

    def taken_back(self, node_id: str) -> None:
        """The slot is free, if there was one."""
        wake = self.given_back.pop(node_id, None)
        if wake is not None:
            wake()

    def note_failed_scan(self, node_id: str) -> None:
        """T-11: nothing answers on the backing node where this node has its slot."""
        self.failed_scans[node_id] = self._placed.get(node_id)
        self._on_change()


# What the driver writes into nodes: ``user_data`` and ``driver_data`` (reference/zookeeper 5.6).

#: More would not be one machine.
MAX_SLOTS: Final = 10_000


def owner_of(provider_name: str) -> str:
    """The name under which a provider locks backing nodes and requests them."""
    return f"{BACKING_OWNER}{provider_name}"


@dataclasses.dataclass(frozen=True)
class BackingData:
    """``user_data`` of a backing node, a JSON text.

    :param launched: seconds since the epoch.
    :param nodes: by slot: the node that has it, or had it until its znode went; None = free. Older launchers do not
        have this key: what they know is in the ``driver_data`` of the nodes.
    :param idle_since: no one has been on it since then, in seconds since the epoch; None = someone is, or no one has
        noted it yet.
    :param lost: code and text, if its instance is lost: the provider that made it writes them (D-9).
    :param extra: keys that we do not know.
    """

    owner: str
    label: str
    slots: int
    failed: bool
    launched: float
    nodes: tuple[str | None, ...]
    idle_since: float | None = None
    lost: tuple[str, str] | None = None
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    def encode(self) -> str:
        known = {name: getattr(self, name) for name in _KEYS}
        lost = {} if self.lost is None else {"lost": list(self.lost)}
        return json.dumps({**self.extra, **known, **lost, "nodes": list(self.nodes)})

    def with_node(self, slot: int, node_id: str | None) -> BackingData:
        """The same with another holder of a slot."""
        nodes = (*self.nodes[:slot], node_id, *self.nodes[slot + 1 :])
        return dataclasses.replace(self, nodes=nodes, idle_since=None)

    @classmethod
    def decode(cls, value: Any) -> BackingData | None:
        """Read it; None = no data of a backing node. Bad values become harmless ones: such a node only empties."""
        if not isinstance(value, str):
            return None
        try:
            data = paths.decode_text(value)
        except InvalidRecord:
            return None
        if not isinstance(data.get("owner"), str):
            return None
        label, slots = data.get("label"), data.get("slots")
        fine = isinstance(label, str)
        if not _is_int(slots) or not 1 <= slots <= MAX_SLOTS:
            fine, slots = False, 1
        return cls(
            owner=data["owner"],
            label=label if isinstance(label, str) else "",
            slots=slots,
            failed=not fine or data.get("failed") is True,
            launched=_time(data.get("launched")) or 0.0,
            nodes=_by_slot(data.get("nodes"), slots),
            idle_since=_time(data.get("idle_since")),
            lost=_loss(data.get("lost")),
            extra={key: item for key, item in data.items() if key not in (*_KEYS, "lost", "nodes")},
        )


_KEYS: Final = ("owner", "label", "slots", "failed", "launched", "idle_since")


def driver_data(metadata: dict[str, str], backing_id: str, slot: int, node_id: str) -> dict[str, Any]:
    """What a requested node remembers."""
    return {"metadata": metadata, "backing_node": backing_id, "slot": slot, "node": node_id}


def place_of(node: Node) -> tuple[str, int] | None:
    """Backing node and slot that a requested node says it has."""
    data = node.driver_data
    if not isinstance(data, dict):
        return None
    backing, slot = data.get("backing_node"), data.get("slot")
    if isinstance(backing, str) and _is_int(slot):
        return backing, slot
    return None


def _by_slot(value: Any, slots: int) -> tuple[str | None, ...]:
    found = [item if isinstance(item, str) and item else None for item in value] if isinstance(value, list) else []
    return tuple((found + [None] * slots)[:slots])


def _loss(value: Any) -> tuple[str, str] | None:
    return (str(value[0]), str(value[1])) if isinstance(value, list) and len(value) == 2 else None


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _time(value: Any) -> float | None:
    fine = isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value)
    return float(value) if fine else None
