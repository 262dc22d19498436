# SPDX-License-Identifier: Apache-2.0
"""Writes of the static driver: every change of a static node in ZooKeeper happens here."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from nodepool.driver.framework.node_log import node_logger
from nodepool.driver.static.quarantines import Quarantines, cause
from nodepool.driver.static.slot_index import SlotIndex
from nodepool.exceptions import ZKConflict, ZKException
from nodepool.model import states
from nodepool.plan import static_hosts
from nodepool.plan.static_hosts import HostFacts, HostId, HostSpec, SlotId, StaticPlan
from nodepool.zk import paths

if TYPE_CHECKING:
    import logging

    from nodepool.model.node import Node
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
        slot = static_hosts.slot_of(node)
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
        return static_hosts.slot_of(node) if spec is not None and static_hosts.knows_slot(spec, node) else None

    def others_in_slot(self, node: Node) -> list[Node]:
        """Other nodes that tell the same slot, in any state: others may register what we would not (S-10).

        Does not block; without a cache it reads all nodes.
        """
        slot = static_hosts.slot_of(node)
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
        first = static_hosts.by_claim([node, *others], self._zk.isNodeLocked)[0]
        return None if first.id == node.id else first

    def is_locked(self, node: Node) -> bool:
        """Does anybody hold or wait for the node's lock?"""
        return self._zk.isNodeLocked(node)

    def plan(self, nodes: Iterable[Node]) -> StaticPlan:
        quarantined = {host: cause(record) for host, record in self._quarantines.held().items()}
        return static_hosts.decide(self._hosts, nodes, self._zk.isNodeLocked, quarantined)

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
                node = static_hosts.new_node(self._provider_name, self._hosts[host], slot, found[host])
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
        return spec is not None and not static_hosts.knows_slot(spec, node)

    def update(self, node: Node, changes: Mapping[str, Any]) -> bool:
        """Change fields of a free node in place (S-6); False = it was not free any more. One round trip."""
        if self._idle.is_set():
            return False
        changed = node.copy()
        for name, value in changes.items():
            setattr(changed, name, value)
        try:
            self._zk.nodes.save_unlocked(changed)
        except ZKConflict as conflict:
            self.log.debug("Node %s is not updated now: %s", node.id, conflict)
            return False
        self.log.info("Updated node %s in place: %s", node.id, ", ".join(sorted(changes)))
        return True

    def hold(self, node: Node, comment: str) -> bool:
        """Put a free node on hold (S-17); False = it was not free any more. One round trip."""
        if self._idle.is_set():
            return False
        held = node.copy()
        held.state = states.HOLD
        held.comment = comment
        try:
            self._zk.nodes.save_unlocked(held)
        except ZKConflict as conflict:
            self.log.debug("Node %s is not put on hold now: %s", node.id, conflict)
            return False
        self.log.info("Node %s of static host %s is on hold: %s", node.id, static_hosts.slot_of(node).host, comment)
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
        self.log.info("Deregistering node %s of static host %s: %s", node.id, static_hosts.slot_of(node).host, reason)
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
                new = static_hosts.successor(self._provider_name, spec, node, others, facts, self.why_held(spec.id))
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
