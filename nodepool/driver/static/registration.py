# SPDX-License-Identifier: Apache-2.0
"""Writes of the static driver: every change of a static node in ZooKeeper happens here.

First the writes, then which nodes have a slot, then which hosts are taken out of service.
"""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import wall_time
from nodepool.driver.framework.handler_hooks import node_logger
from nodepool.driver.framework.quota_support import follow
from nodepool.exceptions import ZKConflict, ZKException
from nodepool.model import states
from nodepool.model.maintenance import Maintenance, MaintenanceRecords, Mode
from nodepool.plan import static
from nodepool.plan.maintenance import CLOCK_SKEW_SECONDS, next_end, of_host
from nodepool.plan.static import HostFacts, HostId, HostSpec, SlotId, StaticPlan
from nodepool.zk import paths

if TYPE_CHECKING:
    import logging

    from nodepool.model.node import Node
    from nodepool.zk.cache import RecordCache
    from nodepool.zk.zookeeper import ZooKeeper


class StaticRegistry:
    """The nodes of one static provider. Thread-safe: it has no state of its own but ``idle`` and the index of slots.

    :param zk: with or without a cache.
    :param hosts: the configuration.
    :param quarantines: hosts that are not registered now.
    :param idle: set = write nothing more; the successor of this provider does (S-13).
    """

    def __init__(
        self,
        zk: ZooKeeper,
        provider_name: str,
        hosts: Mapping[HostId, HostSpec],
        quarantines: Quarantines,
        idle: threading.Event,
        log: logging.Logger,
    ) -> None:
        self._zk = zk
        self._provider_name = provider_name
        self._hosts = hosts
        self._quarantines = quarantines
        self._idle = idle
        #: Nodes of each slot; None = there is no cache.
        self.index = SlotIndex(zk.cache.nodes, self._known_slot) if zk.cache is not None else None
        self.log = log

    def spec_of(self, node: Node) -> HostSpec | None:
        """The host of a node; None if the host or the slot is not configured (any more)."""
        slot = static.slot_of(node)
        spec = self._hosts.get(slot.host)
        return spec if spec is not None and slot.slot < spec.slots else None

    def why_held(self, host: HostId) -> str | None:
        """Why a host is quarantined; None = it is not. Does not block."""
        record = self._quarantines.of(host)
        return None if record is None else cause(record)

    def nodes(self) -> list[Node]:
        """This provider's nodes from the cache; do not change them."""
        return [node for node in self._zk.nodeIterator() if node.provider == self._provider_name]

    def _known_slot(self, node: Node) -> SlotId | None:
        """The configured slot that a node of this provider tells."""
        spec = self.spec_of(node) if node.provider == self._provider_name else None
        return static.slot_of(node) if spec is not None and static.knows_slot(spec, node) else None

    def others_in_slot(self, node: Node) -> list[Node]:
        """Other nodes that tell the same slot, in any state: others may register what we would not (S-10).

        Does not block; without a cache it reads all nodes.
        """
        slot = static.slot_of(node)
        if self.index is not None:
            found = self.index.nodes_in(slot)
        else:
            found = [other for other in self.nodes() if self._known_slot(other) == slot]
        return [other for other in found if other.id != node.id]

    def rival(self, node: Node) -> Node | None:
        """The node that has a better claim to the slot of this one; None = there is none. Blocks like `others_in_slot`.

        Of two nodes the older one is known to everybody who knows the younger one. So two launchers give away one.
        """
        others = self.others_in_slot(node)
        if not others:
            return None
        first = static.by_claim([node, *others], self._zk.isNodeLocked)[0]
        return None if first.id == node.id else first

    def is_locked(self, node: Node) -> bool:
        """Does anybody hold or wait for the node's lock?"""
        return self._zk.isNodeLocked(node)

    def plan(self, nodes: Iterable[Node]) -> StaticPlan:
        quarantined = {host: cause(record) for host, record in self._quarantines.held().items()}
        return static.decide(self._hosts, nodes, self._zk.isNodeLocked, quarantined)

    def register(self, found: Mapping[HostId, HostFacts]) -> int:
        """Store a node for each empty slot of these hosts; returns how many. Blocks for some round trips.

        Another launcher with the same provider does the same. So the slots are compared with what ZooKeeper has
        now, while a lock keeps the others out (S-10).

        :raises ZKException: it is not done or not complete; call it again.
        """
        count = 0
        with self._zk.providerMutex(self._provider_name) as mutex:
            empty = self.plan(self._nodes_now()).register
            for host, slot in [(h, slot) for h, slots in empty.items() if h in found for slot in slots]:
                if self._idle.is_set():
                    break
                node = static.new_node(self._provider_name, self._hosts[host], slot, found[host])
                # Who stood still until the session was over would fill slots that others have filled since.
                self._zk.nodes.create(node, under=mutex)
                self.log.info("Registered static host %s, slot %d, as node %s", host, slot, node.id)
                count += 1
        return count

    def _nodes_now(self) -> list[Node]:
        """This provider's nodes, with all that exist at this moment.

        Host and slot of a node hardly change, so a record from the cache will do; only nodes that the cache does not
        know yet are read, and those that a client wrote without their slot: another launcher may have given them one.
        One that is gone by then may have given its slot to another one, which is not in the list.
        """
        while True:
            known = {node.id: node for node in self._zk.nodeIterator() if not self._lacks_slot(node)}
            listed = self._zk.getNodes()
            found = {node_id: known.get(node_id) or self._zk.getNode(node_id) for node_id in listed}
            # What is there and cannot be read, or has a name that nobody asks for, is no node of ours.
            missing = {node_id for node_id, node in found.items() if node is None and paths.is_name(node_id)}
            if missing == self._zk.nodes.existing(missing):
                return [node for node in found.values() if node is not None and node.provider == self._provider_name]

    def _lacks_slot(self, node: Node) -> bool:
        spec = self.spec_of(node) if node.provider == self._provider_name else None
        return spec is not None and not static.knows_slot(spec, node)

    def update(self, node: Node, changes: Mapping[str, Any]) -> bool:
        """Change fields of a free node in place (S-6); False = it was not free any more. One round trip."""
        changed = self._change(node, changes)
        if changed:
            self.log.info("Updated node %s in place: %s", node.id, ", ".join(sorted(changes)))
        return changed

    def hold(self, node: Node, comment: str) -> bool:
        """Put a free node on hold (S-17); False = it was not free any more. One round trip."""
        held = self._change(node, {"state": states.HOLD, "comment": comment})
        if held:
            self.log.info("Node %s of static host %s is on hold: %s", node.id, static.slot_of(node).host, comment)
        return held

    def _change(self, node: Node, changes: Mapping[str, Any]) -> bool:
        if self._idle.is_set():
            return False
        changed = node.copy()
        for name, value in changes.items():
            setattr(changed, name, value)
        try:
            self._zk.nodes.save_unlocked(changed)
        except ZKConflict as conflict:
            self.log.debug("Node %s is not changed now: %s", node.id, conflict)
            return False
        return True

    def deregister(self, node: Node, reason: str) -> bool:
        """Remove a free node; False = it was not free any more. Two round trips."""
        if self._idle.is_set():
            return False
        doomed = node.copy()
        doomed.state = states.DELETING
        try:
            self._zk.nodes.lock_and_save(doomed)
        except ZKConflict as conflict:
            self.log.debug("Node %s is not deregistered now: %s", node.id, conflict)
            return False
        self.log.info("Deregistering node %s of static host %s: %s", node.id, static.slot_of(node).host, reason)
        try:
            self._zk.deleteNode(doomed)
        except ZKException:
            # It is `deleting`: whoever looks after released nodes finishes this.
            self.unlock(doomed)
            raise
        return True

    def recycle(self, node: Node, facts: HostFacts | None) -> bool:
        """Remove a released node that we hold locked; ends with the node gone or unlocked. One round trip.

        :param facts: register the slot again in the same write, unless another node has it; None = only remove. The
            node of a quarantined host is followed by one on hold.
        :return: has the slot a node again?
        """
        log = node_logger(self.log, node)
        spec = self.spec_of(node)
        if self._idle.is_set():
            self.unlock(node)
            return False
        new = None
        try:
            if spec is not None:
                others = self.others_in_slot(node)
                new = static.successor(self._provider_name, spec, node, others, facts, self.why_held(spec.id))
            try:
                self._zk.replaceNode(node, new)
            except ZKConflict:
                if new is None:
                    raise
                # Somebody waits for the lock. The slot is registered again by the next pass.
                new = None
                self._zk.replaceNode(node, None)
        except ZKException as error:
            log.error("Removing the node failed, it will be tried again: %s", error)
            self.unlock(node)
            return False
        log.info("Removed node; %s", f"its slot is node {new.id} now" if new is not None else "it has no successor")
        return new is not None

    def unlock(self, node: Node) -> None:
        """Give a node's lock back; errors are logged."""
        if node.lock is None:
            return
        try:
            self._zk.unlockNode(node)
        except ZKException as error:
            self.log.error("Unlocking node %s failed: %s", node.id, error)


# Which nodes have a slot? A look costs no more than what has changed since the last one.


class SlotIndex:
    """The nodes of each slot of a provider's hosts.

    Any thread may ask. ``_lock`` guards the two maps; it is held for dictionary work only.

    :param nodes: the cache of nodes; it lets go of the index when nobody else holds it.
    :param slot_of: the slot of a node; None = it is in none. Must not block.
    """

    def __init__(self, nodes: RecordCache[Node], slot_of: Callable[[Node], SlotId | None]) -> None:
        self._nodes = nodes
        self._slot_of = slot_of
        self._lock = threading.Lock()
        self._changes = follow(nodes, self)
        self._slots: dict[str, SlotId] = {}
        self._ids: dict[SlotId, set[str]] = {}

    def nodes_in(self, slot: SlotId) -> list[Node]:
        """The nodes that have a slot, in any state; do not change them. Does not block."""
        with self._lock:
            self._update()
            found = list(self._ids.get(slot, ()))
        return [node for node in map(self._nodes.get, found) if node is not None]

    def _update(self) -> None:
        changed = self._changes.take()
        if "" in changed:
            changed = {*self._slots, *self._nodes.ids()}
        for node_id in changed:
            node = self._nodes.get(node_id)
            self._place(node_id, None if node is None else self._slot_of(node))

    def _place(self, node_id: str, slot: SlotId | None) -> None:
        old = self._slots.get(node_id)
        if old == slot:
            return
        if old is not None:
            del self._slots[node_id]
            self._ids[old].discard(node_id)
            if not self._ids[old]:
                del self._ids[old]
        if slot is not None:
            self._slots[node_id] = slot
            self._ids.setdefault(slot, set()).add(node_id)


# Which hosts are taken out of service, by an operator or because they fail? (rules S-16, S-17)

_NONE: Final[Mapping[HostId, Maintenance]] = MappingProxyType({})


def cause(record: Maintenance) -> str:
    """Who quarantined a host and why, for an operator."""
    return ": ".join(part for part in (record.by, record.reason) if part) or "no reason was given"


class Quarantines:
    """The maintenance records of a provider's hosts. Any thread may ask; only `quarantine` blocks.

    Without a cache, in a command, none is known: the launchers put a quarantined host's node on hold.

    :param wall: seconds since the epoch.
    """

    def __init__(self, zk: ZooKeeper, hosts: Mapping[HostId, HostSpec], wall: Callable[[], float] = wall_time) -> None:
        self._zk = zk
        self._hosts = hosts
        self._wall = wall
        self._read = False
        #: Who writes the records of this launcher.
        self.by = f"launcher {socket.gethostname()}"

    def of(self, host: HostId) -> Maintenance | None:
        """Why a host is out of service now; None = it is not."""
        records = self._records()
        return of_host(records, *host, self._wall()) if records else None

    def held(self) -> Mapping[HostId, Maintenance]:
        """All hosts that are out of service now."""
        records, now = self._records(), self._wall()
        if not any(kind == "host" for kind, _ in records):
            return _NONE
        return {host: record for host in self._hosts if (record := of_host(records, *host, now)) is not None}

    def seconds_to_next_end(self) -> float:
        """Until the next record ends by itself; infinite = none does."""
        now = self._wall()
        end = next_end(self._records(), now)
        return math.inf if end is None else max(0.0, end - now)

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._wall()

    def ended_early(self, record: Maintenance) -> bool:
        """Did somebody end a record that would have held longer? Clocks of hosts differ."""
        return not record.is_over(self._wall() + CLOCK_SKEW_SECONDS)

    def surely_over(self, hosts: Collection[HostId]) -> set[HostId]:
        """Those of some hosts that ZooKeeper has no record of. Blocks for round trips.

        The cache may learn of a node on hold before it has read the record that the node is on hold for.

        :raises ZKException: it could not be asked.
        """
        records, now = self._zk.maintenance.read_all(), self._wall()
        return {host for host in hosts if of_host(records, *host, now) is None}

    @property
    def known(self) -> bool:
        """Have the records been read? Before that nodes on hold would be taken for those of released hosts."""
        cache = self._zk.cache
        self._read = self._read or cache is None or cache.maintenance.ready.is_set()
        return self._read

    def quarantine(self, host: HostId, reason: str, seconds: float, *, since: float | None = None) -> bool:
        """Take a host that fails out of service for a time, for all launchers. Blocks for round trips.

        :param since: when it was quarantined first, in seconds since the epoch; None = now.
        :return: False = an operator has quarantined it.
        :raises ZKException: it is not done.
        """
        now = self._wall()
        record = Maintenance("host", str(host), Mode.QUARANTINE, reason, self.by, since or now, now + seconds, True)
        return self._zk.maintenance.put_automatic(record, now)

    def _records(self) -> MaintenanceRecords:
        cache = self._zk.cache
        return cache.maintenance.snapshot() if cache is not None else {}
