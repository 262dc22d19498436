# SPDX-License-Identifier: Apache-2.0
"""Slots of backing nodes as a cloud (rules T).

First the provider, which gives ZooKeeper to its adapter, then the adapter with its instances, then the task that
assigns slots, then what becomes of backing nodes whose provider is removed for good.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from nodepool.clock import monotonic, wall_time
from nodepool.driver.config import LabelSettings
from nodepool.driver.framework.rate import WHEN_WOKEN_SECONDS
from nodepool.driver.metastatic.backing import (
    BackingData,
    BackingHolds,
    BackingRequests,
    BackingView,
    Entry,
    OpenRequest,
    SlotRequest,
    SlotRequests,
    Waiting,
    driver_data,
    owner_of,
    place_of,
)
from nodepool.driver.metastatic.config import MetastaticLabel, MetastaticProviderConfig
from nodepool.driver.statemachine import Adapter, Instance, Resource, StateMachine, StateMachineProvider
from nodepool.driver.statemachine.adapter import Log
from nodepool.driver.statemachine.cloud import RunningLaunch
from nodepool.exceptions import LaunchHeldException, LaunchStatusException, ZKConflict, ZKException
from nodepool.guard import Guard
from nodepool.model import states
from nodepool.model.node import Node, QuotaInformation
from nodepool.model.reasons import Reason
from nodepool.model.request import NodeRequest
from nodepool.plan import backing as plan
from nodepool.plan.backing import Release
from nodepool.plan.retries import SeenTwice
from nodepool.zk.nodes import NodepoolCache
from nodepool.zk.zookeeper import ZooKeeper


class MetastaticProvider(StateMachineProvider):
    """Nodes on slots of nodes that other providers have made."""

    adapter: MetastaticAdapter
    provider: MetastaticProviderConfig

    def start(self, zk_conn: ZooKeeper) -> None:
        """Begin to look after backing nodes; does not block.

        Without a cache, in a command, nothing is looked after: the provider is there to delete one node.
        """
        super().start(zk_conn)
        self.adapter.zk = zk_conn
        if zk_conn.cache is not None:
            self.adapter.allocator = SlotAllocator(self, zk_conn, zk_conn.cache)
            self.adapter.allocator.start()

    def idle(self) -> None:
        super().idle()
        if self.adapter.allocator is not None:
            self.adapter.allocator.idle()

    def stop(self) -> None:
        if self.adapter.allocator is not None:
            self.adapter.allocator.drain()
        super().stop()

    def heldLabels(self, pool_name: str) -> Mapping[str, Reason]:
        """T-13."""
        pool, allocator = self.provider.pools.get(pool_name), self.adapter.allocator
        return {} if allocator is None or pool is None else allocator.held_labels(pool.labels.values())

    def stopWaiting(self, node_ids: Collection[str]) -> None:
        """T-13: launches that wait for a backing node that no one has begun to make."""
        if self.adapter.allocator is not None:
            self.adapter.allocator.slot_requests.stop_waiting(node_ids)

    def launch_ended(self, launch: RunningLaunch) -> None:
        super().launch_ended(launch)
        if self.adapter.allocator is not None:
            self.adapter.allocator.slot_requests.drop(launch.node.key)


# `MetastaticAdapter`: the "cloud" whose instances are slots of backing nodes.

#: A machine that waits is woken; this is the safety net.
WAITING_SECONDS: Final = 30.0


class SlotInstance(Instance):
    """A slot, seen as a machine: it is the backing node, but for its id (T-5)."""

    def load(self, node_id: str, metadata: dict[str, str], backing: Node, slot: int) -> None:
        self.ready = True
        self.external_id = node_id
        self.metadata = metadata
        self.slot = slot
        self.driver_data = driver_data(metadata, backing.key, slot, node_id)
        for name in COPIED:
            setattr(self, name, getattr(backing, name))
        for name in COPIED_IF_SET:
            if getattr(backing, name) is not None:
                setattr(self, name, getattr(backing, name))
        self.host_keys = list(backing.host_keys)
        self.node_attributes = dict(backing.attributes or {})

    def getQuotaInformation(self) -> QuotaInformation:
        return QuotaInformation(instances=1)


COPIED: Final = (
    *("interface_ip", "public_ipv4", "public_ipv6", "private_ipv4", "private_ipv6"),
    *("cloud", "region", "az", "host_id"),
)
#: Where the framework has a default of its own.
COPIED_IF_SET: Final = ("username", "python_path", "shell_type", "connection_type", "connection_port")


class WaitForSlot(StateMachine):
    """Waits until the `SlotAllocator` has a slot."""

    def __init__(self, allocator: SlotAllocator, label: MetastaticLabel, metadata: dict[str, str], log: Log) -> None:
        super().__init__()
        self._allocator = allocator
        self._metadata = metadata
        # `wake` is set later.
        self._ticket = SlotRequest(metadata["nodepool_node_id"], label.kind, lambda: self.wake(), log)

    def advance(self) -> Instance | None:
        ticket = self._ticket
        if self.state == self.START:
            self.external_id = ticket.node_id
            self.state = "waiting for a slot"
            self.next_advance_seconds = WAITING_SECONDS
            self._allocator.slot_requests.add(ticket)
            return None
        if ticket.error is not None:
            raise ticket.error
        if ticket.place is None:
            return None
        self.complete = True
        return SlotInstance(ticket.node_id, self._metadata, *ticket.place)


class GiveSlotBack(StateMachine):
    """Frees the slot of a node.

    There is nothing to do when the node is about to go: a slot belongs to a node as long as its znode exists.

    :param allocator: None = in a command, which only deletes nodes.
    """

    def __init__(self, adapter: MetastaticAdapter, node_id: Any) -> None:
        super().__init__()
        self._adapter = adapter
        self.external_id = node_id

    def advance(self) -> None:
        allocator, node_id = self._adapter.allocator, str(self.external_id)
        begins = self.state == self.START
        if allocator is not None and begins and self._adapter.stays(node_id):
            self.state = "giving the slot back"
            self.next_advance_seconds = WAITING_SECONDS
            allocator.slot_requests.give_back(node_id, self.wake)
            return
        self.complete = allocator is None or begins or node_id not in allocator.slot_requests.given_back


class MetastaticAdapter(Adapter):
    """Knows ZooKeeper, once the provider was started."""

    advance_threads = 8

    def __init__(self, provider_config: MetastaticProviderConfig) -> None:
        super().__init__(provider_config)
        self._provider_name = provider_config.name
        #: None = the provider was not started.
        self.zk: ZooKeeper | None = None
        #: None = likewise, or in a command.
        self.allocator: SlotAllocator | None = None

    def getCreateStateMachine(
        self,
        hostname: str,
        label: MetastaticLabel,
        image_external_id: Any,
        metadata: dict[str, str],
        request: NodeRequest,
        az: str | None,
        log: Log,
    ) -> StateMachine:
        if self.allocator is None:
            raise RuntimeError(f"provider {self._provider_name} was not started")
        return WaitForSlot(self.allocator, label, metadata, log)

    def getDeleteStateMachine(self, external_id: Any, log: Log) -> StateMachine:
        return GiveSlotBack(self, external_id)

    def stays(self, node_id: str) -> bool:
        """Is there a node that will not go soon?"""
        cache = None if self.zk is None else self.zk.cache
        node = None if cache is None else cache.nodes.get(node_id)
        return node is not None and node.state not in (states.DELETING, states.DELETED)

    def listInstances(self) -> Iterator[Instance]:
        """Nodes of this provider that have a slot: their metadata is in their ``driver_data``."""
        for node in self.zk.nodeIterator() if self.zk is not None else ():
            place = place_of(node) if node.provider == self._provider_name else None
            if place is not None:
                instance = Instance()
                instance.ends = None if self.allocator is None else self.allocator.loss_of(place[0])
                instance.ready = True
                instance.external_id = node.external_id
                metadata = node.driver_data.get("metadata")
                instance.metadata = metadata if isinstance(metadata, dict) else {}
                yield instance

    def listResources(self) -> Iterable[Resource]:
        """Nothing can be left over but locks of backing nodes, which the allocator looks after."""
        if self.allocator is not None:
            self.allocator.sweep_soon()
        return []

    def notifyNodescanFailure(self, label: LabelSettings, external_id: Any) -> None:
        if self.allocator is not None:
            self.allocator.slot_requests.note_failed_scan(str(external_id))

    def stop(self) -> None:
        if self.allocator is not None:
            self.allocator.close()


# `SlotAllocator`: gives slots of backing nodes to nodes, asks for backing nodes and releases them (rules T).
#
# One task of the provider's scheduler. A pass takes in what has changed, decides with `nodepool.plan.backing`, and
# writes. Every write is fenced by the version of the backing node, so launchers that share a provider may all do this
# at the same time: of two that give away the same slot, one fails and looks again.

#: Next pass after ZooKeeper did not do what we wanted.
ZK_RETRY_SECONDS: Final = 2.0
#: A backing node that has been empty for so long is marked: one that is used again at once costs no write.
NOTE_IDLE_SECONDS: Final = 30.0
#: In one pass: who waits for a slot meanwhile shall not wait for long.
MOST_RELEASES: Final = 100
#: Someone may hold the lock of a new backing node for a moment, e.g. a command (reference/zookeeper 3).
CLAIM_SECONDS: Final = 30.0
CLAIM_RETRY_SECONDS: Final = 0.5
#: A pass without any event, the safety net.
LONGEST_PASS_PAUSE_SECONDS: Final = 60.0


class _Passes:
    """The allocator as a task: a new one for each time it begins to work, so that the end of one ends no other."""

    def __init__(self, step: Callable[[], float | None]) -> None:
        self.step = step


class SlotAllocator:
    """Keeps the slots of one provider.

    A pass owns everything but the slot requests, which are guarded by a lock of their own.
    """

    def __init__(self, provider: MetastaticProvider, zk: ZooKeeper, cache: NodepoolCache) -> None:
        self._provider = provider
        self._zk = zk
        self._cache = cache
        #: Identifier of our locks.
        self._owner = owner_of(provider.name)
        self._rules = provider.provider.rules()
        self._scheduler = provider.scheduler
        self.log = provider.log
        self.slot_requests = SlotRequests(self.start)
        self._holds = BackingHolds(zk, cache)
        self._lock = threading.Lock()
        self._task: _Passes | None = None
        self._idle = threading.Event()
        self._draining = threading.Event()
        self._sweep_wanted = threading.Event()
        #: Passes that have ended. For tests.
        self.passes = 0
        kinds, is_held = self._rules.keys(), self._holds.of_node
        self.view = BackingView(zk, cache, provider.name, kinds, is_held, self.wake, self.log)
        self.requests = BackingRequests(zk, cache, self._owner, self.log, self.wake)
        #: Nodes that looked as if they were left behind, at the last sweep.
        self._left_behind: SeenTwice[str] = SeenTwice()
        cache.maintenance.add_listener(self.wake)

    # -- other threads --

    def start(self) -> None:
        """Begin to work in the scheduler's threads, or have a pass now. Any thread; does not block."""
        with self._lock:
            if self._task is None:
                task = _Passes(self.step)
                if self._scheduler.add(task):
                    self._task = task
        self.wake()

    def wake(self) -> None:
        """Ask for a pass now. Does not block."""
        task = self._task
        if task is not None:
            self._scheduler.wake(task)

    def idle(self) -> None:
        """Release nothing any more: a successor does. Who waits for a slot still gets one."""
        self._idle.set()

    def drain(self) -> None:
        """End when no one waits for a slot any more."""
        self._idle.set()
        self._draining.set()
        self.wake()

    def close(self) -> None:
        """The scheduler has ended: take back what was requested. May block."""
        self._cache.maintenance.remove_listener(self.wake)
        self.view.close()
        self.requests.close()

    def sweep_soon(self) -> None:
        """Look for locks that were left behind, with the next pass."""
        self._sweep_wanted.set()
        self.wake()

    def held_labels(self, labels: Iterable[MetastaticLabel]) -> dict[str, Reason]:
        """T-13: those that are not served now, and why."""
        return self._holds.of_labels(label.kind for label in labels)

    # -- the task --

    def step(self) -> float | None:
        """See `nodepool.driver.framework.rate.Task`."""
        wait: float = ZK_RETRY_SECONDS
        # A task that raises is over, and no one would hand out slots any more.
        with Guard(self.log, "Error while looking after backing nodes; trying again in %g s", ZK_RETRY_SECONDS):
            try:
                wait = self.run_once()
            except ZKException as error:
                self.log.warning("ZooKeeper: %s. Trying again in %g s", error, ZK_RETRY_SECONDS)
        self.passes += 1
        with self._lock:
            if self._draining.is_set() and not self.slot_requests.busy:
                self._task = None
                return None
        return wait

    def run_once(self) -> float:
        """One pass.

        :return: seconds until the next is due without an event.
        :raises ZKException: it is not complete.
        """
        if not (self._cache.nodes.ready.is_set() and self._cache.requests.ready.is_set()):
            return WHEN_WOKEN_SECONDS
        self.view.update()
        self.requests.find_unanswered()
        waits = [LONGEST_PASS_PAUSE_SECONDS]
        waits.append(self._follow())
        # Those who come later have their turn with the next pass: they may find a slot that is free now.
        waiting = self.slot_requests.waiting()
        # Who gives a slot back has reported before that no one answers there: that comes first.
        given_back = list(self.slot_requests.given_back)
        if not (self._mark_failed() and self._take_back(given_back) and self._assign(waiting)):
            # Another wrote first. What is decided next must rest on what he wrote.
            return 0.0
        self._end_lost()
        self._note_free()
        self._end_stopped(waiting)
        self._request(waiting)
        waits.append(self._holds.next_end())
        if not self._idle.is_set():
            waits.append(self._release())
            if self._sweep_wanted.is_set():
                self._sweep_wanted.clear()
                self._sweep()
                self.view.check_hidden()
        waits.append(self.requests.delete_ended())
        return 0.0 if self.view.is_behind() else min(waits)

    # -- slots --

    def _mark_failed(self) -> bool:
        """T-11; False = another wrote first, once more."""
        for node_id, backing_id in list(self.slot_requests.failed_scans.items()):
            place = self.view.backing_of(node_id) if backing_id is None else None
            # The node itself may be deleted by now.
            entry = self.view.entries.get(backing_id or "") if place is None else place[0]
            if entry is not None and not entry.data.failed:
                self.log.warning("Backing node %s failed: it does not answer (node %s)", entry.id, node_id)
                if not self.view.write(entry, dataclasses.replace(entry.data, failed=True)):
                    return False
            self.slot_requests.failed_scans.pop(node_id, None)
        return True

    def loss_of(self, backing_id: str) -> tuple[str, str] | None:
        """Code and text, if a backing node is lost. Any thread."""
        entry = self.view.entries.get(backing_id)
        if entry is None or entry.data.lost is None:
            return None
        code, text = entry.data.lost
        return code, f"backing node {backing_id} is lost: {text}"

    def _end_lost(self) -> None:
        """T-15: nodes on backing nodes whose instances are lost."""
        for entry in list(self.view.entries.values()):
            loss = self.loss_of(entry.id)
            if loss is not None:
                for node_id in {node_id for node_id in entry.holders if node_id is not None}:
                    self._provider.lost.ended(node_id, *loss)

    def _take_back(self, node_ids: Iterable[str]) -> bool:
        """Free the slots of nodes whose launch begins anew; False = another wrote first, once more."""
        for node_id in node_ids:
            place = self.view.backing_of(node_id)
            if place is not None and not self.view.write(place[0], place[0].data.with_node(place[1], None)):
                return False
            self.slot_requests.taken_back(node_id)
        return True

    def _assign(self, waiting: Waiting) -> bool:
        """T-1, T-7: who gets a slot is taken out of ``waiting``; False = the world has changed meanwhile, once more."""
        complete = True
        for kind, slot_requests in waiting.items():
            rules = self._rules.get(kind)
            if rules is None:
                continue
            self._place_again(slot_requests)
            backings = [backing for backing in self.view.backings() if backing.kind == kind]
            assigned: dict[str, dict[int, SlotRequest]] = {}
            for found in plan.assign(slot_requests, backings, rules):
                assigned.setdefault(found.backing_id, {})[found.slot] = slot_requests[found.node_id]
            for backing_id, slots in assigned.items():
                if self._put(self.view.entries[backing_id], slots):
                    for slot_request in slots.values():
                        del slot_requests[slot_request.node_id]
                else:
                    complete = False
        return complete

    def _note_free(self) -> None:
        """Labels are served as long as there are slots, no matter who makes backing nodes."""
        if not self._holds.active:
            return
        free = {
            backing.kind
            for backing in self.view.backings()
            if backing.kind is not None
            and plan.accepts(backing, self._rules.get(backing.kind))
            and plan.free_slots(backing.holders)
        }
        if self._holds.note_free(frozenset(free)):
            self._provider.wake_workers()

    def _end_stopped(self, waiting: Waiting) -> None:
        """T-13: they are taken out of ``waiting``."""
        stopped = self.slot_requests.take_stopped()
        for kind, slot_requests in waiting.items():
            for node_id in stopped & slot_requests.keys():
                request_id = slot_requests[node_id].request_id
                if request_id is None or not self._is_begun(request_id):
                    text = f"nothing new is begun, and no provider makes a node of label {kind.backing_label} yet"
                    self.slot_requests.fail(slot_requests.pop(node_id), LaunchHeldException(text))

    def _is_begun(self, request_id: str) -> bool:
        """Is a backing request served, or is a node being made for it?"""
        current = self.requests.look(request_id)
        return current is not None and (current.state == states.FULFILLED or self.view.has_node_for(request_id))

    def _place_again(self, slot_requests: dict[str, SlotRequest]) -> None:
        """Take out those who have a slot already, e.g. because the answer to the write was lost."""
        for node_id, slot_request in list(slot_requests.items()):
            place = self.view.backing_of(node_id)
            if place is not None and place[0].kind == slot_request.kind and not place[0].data.failed:
                self.slot_requests.place(slot_request, place[0].node, place[1])
                del slot_requests[node_id]

    def _put(self, entry: Entry, slots: Mapping[int, SlotRequest]) -> bool:
        """Write who gets which slots of one backing node."""
        if not self.view.is_free(entry, slots):
            return False
        data = entry.data
        for slot, slot_request in slots.items():
            data = data.with_node(slot, slot_request.node_id)
        if not self.view.write(entry, data):
            return False
        for slot, slot_request in slots.items():
            self.slot_requests.place(slot_request, entry.node, slot)
        return True

    # -- backing nodes --

    def _request(self, waiting: Waiting) -> None:
        """T-1, T-2: as many backing requests as the waiting nodes need, and no more."""
        for kind, slot_requests in waiting.items():
            rules = self._rules.get(kind)
            if rules is None:
                text = f"label {kind.label} is not configured any more"
                for slot_request in slot_requests.values():
                    self.slot_requests.fail(slot_request, LaunchStatusException(text))
                continue
            current = {node_id: slot_request.request_id for node_id, slot_request in slot_requests.items()}
            shares, left = plan.share(current, self.requests.of(kind), rules.slots)
            for node_id, request_id in shares.items():
                slot_requests[node_id].request_id = request_id
            for first in range(0, len(left), rules.slots):
                group = left[first : first + rules.slots]
                request_id = self.requests.submit(kind, len(group))
                for node_id in group:
                    slot_requests[node_id].request_id = request_id
        self._cancel(
            {slot_request.request_id for slot_requests in waiting.values() for slot_request in slot_requests.values()}
        )

    def _cancel(self, wanted: set[str | None]) -> None:
        """Take back requests that no one waits for, unless a node is being made already.

        That one would be ready for no one and stay. When it comes it is claimed, and released as soon as may be.
        """
        for request_id in [request_id for request_id in self.requests.open if request_id not in wanted]:
            current = self.requests.look(request_id)
            if current is None or current.state == states.FULFILLED or self.view.has_node_for(request_id):
                continue
            self.requests.cancel(request_id)

    def _release(self) -> float:
        """T-8 to T-11; seconds until one may be due."""
        waits, released = [plan.NEVER_SECONDS], 0
        for backing in self.view.backings():
            rules = None if backing.kind is None else self._rules.get(backing.kind)
            decision = plan.fate(backing, rules)
            entry = self.view.entries[backing.id]
            if not isinstance(decision, Release):
                waits += [decision.seconds, self._note_idle(entry, backing.idle_seconds)]
            elif released == MOST_RELEASES or not self._release_one(entry, decision.reason):
                waits.append(0.0)
            else:
                released += 1
        return min(waits)

    def _note_idle(self, entry: Entry, idle_seconds: float | None) -> float:
        """Grace shall not begin anew with each restart; seconds until there is something to note."""
        if idle_seconds is None or entry.data.idle_since is not None:
            return plan.NEVER_SECONDS
        if idle_seconds < NOTE_IDLE_SECONDS:
            return NOTE_IDLE_SECONDS - idle_seconds
        noted = self.view.write(entry, dataclasses.replace(entry.data, idle_since=entry.idle_since))
        return plan.NEVER_SECONDS if noted else 0.0

    def _release_one(self, entry: Entry, reason: str) -> bool:
        if not self.view.is_free(entry, range(len(entry.data.nodes))):
            return False
        node = entry.node.copy()
        node.state = states.USED
        try:
            self._zk.nodes.save_and_release(node, entry.contender)
        except ZKConflict as conflict:
            self.log.info("Backing node %s is not released: %s", entry.id, conflict)
            self.view.refresh(entry)
            return False
        self.view.drop(entry)
        self.log.info("Released backing node %s of label %s: %s", entry.id, entry.data.label, reason)
        return True

    # -- nodes of fulfilled backing requests become ours (T-3) --

    def _follow(self) -> float:
        """See what has become of the open requests; seconds until a claim is to be tried again."""
        waits = [CLAIM_SECONDS]
        for opened in list(self.requests.open.values()):
            request = self.requests.look(opened.id)
            if request is None:
                self._failed(opened, "does not exist any more")
                self.requests.open.pop(opened.id, None)
            elif request.state == states.FAILED:
                self._failed(opened, "failed: every pool declined it")
                self.requests.end(opened.id)
            elif request.state == states.FULFILLED:
                self._holds.note_declined(opened.kind, ())
                if not self._fulfilled(opened, request):
                    waits.append(CLAIM_RETRY_SECONDS)
            elif request.declined_by:
                self._holds.note_declined(opened.kind, request.declined_by)
        return min(waits)

    def _failed(self, opened: OpenRequest, what: str) -> None:
        """T-4."""
        text = f"backing request {opened.id} for label {opened.kind.backing_label} {what}"
        self.log.warning("%s", text)
        self.slot_requests.fail_request(opened.id, text)

    def _fulfilled(self, opened: OpenRequest, request: NodeRequest) -> bool:
        """Claim the node of a request; False = not yet."""
        node = self._zk.getNode(request.nodes[0]) if request.nodes else None
        if node is None or node.state != states.READY or node.allocated_to != request.id:
            data = None if node is None or node.state != states.IN_USE else BackingData.decode(node.user_data)
            if data is None or data.owner != self._owner:
                self._failed(opened, f"got node(s) {request.nodes}, but they were taken")
            # Else the answer to our claim was lost, and it is ours.
            self.requests.end(opened.id)
            return True
        try:
            self._claim(opened, node)
        except ZKConflict as conflict:
            now = monotonic()
            opened.claim_until = opened.claim_until or now + CLAIM_SECONDS
            if now < opened.claim_until:
                self.log.info("Backing node %s cannot be locked now: %s", node.id, conflict)
                return False
            self._failed(opened, f"got node {node.id}, but it cannot be locked: {conflict}")
        self.requests.end(opened.id)
        return True

    def _claim(self, opened: OpenRequest, node: Node) -> None:
        """T-3: lock for good, ``user_data`` and `in-use`, in one write, together with those who wait for it."""
        slots = self._rules[opened.kind].slots
        waiting = self.slot_requests.first(opened.kind, slots)
        nodes: list[str | None] = [slot_request.node_id for slot_request in waiting]
        nodes += [None] * (slots - len(nodes))
        data = BackingData(self._owner, opened.kind.label, slots, False, wall_time(), tuple(nodes))
        node.state = states.IN_USE
        node.user_data = data.encode()
        self.view.trust(self._zk.nodes.lock_for_good(node, self._owner))
        self.log.info(
            "Backing node %s of label %s (request %s): %d slot(s) for label %s, %d taken",
            node.id,
            opened.kind.backing_label,
            opened.id,
            slots,
            opened.kind.label,
            len(waiting),
        )
        self.view.update()
        for slot, slot_request in enumerate(waiting):
            self.slot_requests.place(slot_request, node, slot)

    # -- what was left behind --

    def _sweep(self) -> None:
        """Release locks of this provider on nodes that are no backing nodes (any more).

        Our own writes leave none. Older launchers lock, mark and unlock one after the other, and may be killed in
        between; and someone may have changed a backing node by hand. What looks so in two sweeps is so.
        """
        found = {node.key: node for node in self._zk.nodeIterator() if self._is_left_behind(node)}
        for node_id in sorted(self._left_behind.look(found)):
            node = found[node_id].copy()
            self.log.warning("Unlocking node %s (%s): it is locked, but it is no backing node", node_id, node.state)
            try:
                self._zk.forceUnlockNode(node)
            except ZKConflict as conflict:
                self.log.info("Node %s: %s", node_id, conflict)

    def _is_left_behind(self, node: Node) -> bool:
        node_id = node.key
        data = BackingData.decode(node.user_data)
        if node.requestor != self._owner and (data is None or data.owner != self._owner):
            return False
        if node_id in self.view.entries or self.view.guests_of(node_id) or not self._zk.isNodeLocked(node):
            return False
        if data is not None and self._zk.nodes.existing(user for user in data.nodes if user is not None):
            return False
        if node.state == states.READY and node.allocated_to and self.requests.look(node.allocated_to) is not None:
            return False
        holder = self._zk.nodes.lock_holder(node_id)
        return holder is not None and holder[1] == self._owner


# Backing nodes of a provider that is removed for good (rules T, G-6).
#
# As long as the provider is configured somewhere this is the `SlotAllocator`'s work.


def backing_nodes(zk: ZooKeeper, provider_name: str) -> Iterator[tuple[Node, str]]:
    """Those that are locked for the provider, each with its contender. Blocks for a round trip a node."""
    owner = owner_of(provider_name)
    for node in zk.nodeIterator(cached=False):
        data = BackingData.decode(node.user_data)
        if node.state == states.IN_USE and data is not None and data.owner == owner:
            holder = zk.nodes.lock_holder(node.key)
            if holder is not None and holder[1] == owner:
                yield node, holder[0]


def release(zk: ZooKeeper, node: Node, contender: str) -> None:
    """Give a backing node back to the provider that it came from, no matter who is on it.

    :raises ZKConflict: someone changed it meanwhile.
    """
    node.state = states.USED
    zk.nodes.save_and_release(node, contender)
