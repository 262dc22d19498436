# SPDX-License-Identifier: Apache-2.0
"""`Claims`: makes nodes of fulfilled backing requests ours, and unlocks what was left behind (rule T-3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.driver.metastatic.records import BackingData
from nodepool.exceptions import LaunchStatusException, ZKConflict
from nodepool.model import states
from nodepool.plan.seen_twice import SeenTwice

if TYPE_CHECKING:
    from nodepool.driver.metastatic.backing_holds import BackingHolds
    from nodepool.driver.metastatic.backing_requests import BackingRequests, OpenRequest
    from nodepool.driver.metastatic.backing_view import BackingView
    from nodepool.driver.metastatic.slot_requests import SlotRequests
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.plan.backing import BackingKind, Rules
    from nodepool.zk.zookeeper import ZooKeeper

#: Somebody may hold the lock of a new backing node for a moment, e.g. a command (reference/zookeeper 3).
CLAIM_SECONDS: Final = 30.0
CLAIM_RETRY_SECONDS: Final = 0.5


class Claims:
    """Part of the `SlotAllocator`'s pass.

    :param owner: identifier of our locks.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        owner: str,
        view: BackingView,
        requests: BackingRequests,
        slot_requests: SlotRequests,
        holds: BackingHolds,
        rules: Mapping[BackingKind, Rules],
        log: Log,
        clock: Callable[[], float],
    ) -> None:
        self._zk = zk
        self._owner = owner
        self._view = view
        self._requests = requests
        self._slot_requests = slot_requests
        self._holds = holds
        self._rules = rules
        self._clock = clock
        self.log = log
        #: Nodes that looked as if they were left behind, at the last sweep.
        self._left_behind: SeenTwice[str] = SeenTwice()

    def follow(self) -> float:
        """See what has become of the open requests; seconds until a claim is to be tried again."""
        waits = [CLAIM_SECONDS]
        for opened in list(self._requests.open.values()):
            request = self._requests.look(opened.id)
            if request is None:
                self._failed(opened, "is gone")
                self._requests.forget(opened.id)
            elif request.state == states.FAILED:
                self._failed(opened, "failed: every pool declined it")
                self._requests.end(opened.id)
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
        self._slot_requests.fail_request(opened.id, lambda: LaunchStatusException(text))

    def _fulfilled(self, opened: OpenRequest, request: NodeRequest) -> bool:
        """Claim the node of a request; False = not yet."""
        node = self._zk.getNode(request.nodes[0]) if request.nodes else None
        if node is None or node.state != states.READY or node.allocated_to != request.id:
            data = None if node is None or node.state != states.IN_USE else BackingData.decode(node.user_data)
            if data is None or data.owner != self._owner:
                self._failed(opened, f"got node(s) {request.nodes}, but somebody else took them")
            # Else the answer to our claim was lost, and it is ours.
            self._requests.end(opened.id)
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
        self._requests.end(opened.id)
        return True

    def _claim(self, opened: OpenRequest, node: Node) -> None:
        """T-3: lock for good, ``user_data`` and `in-use`, in one write, together with those who wait for it."""
        slots = self._rules[opened.kind].slots
        waiting = self._slot_requests.first(opened.kind, slots)
        nodes: list[str | None] = [slot_request.node_id for slot_request in waiting]
        nodes += [None] * (slots - len(nodes))
        data = BackingData(self._owner, opened.kind.label, slots, False, self._clock(), tuple(nodes))
        node.state = states.IN_USE
        node.user_data = data.encode()
        self._view.trust(self._zk.nodes.lock_for_good(node, self._owner))
        self.log.info(
            "Backing node %s of label %s (request %s): %d slot(s) for label %s, %d taken",
            node.id,
            opened.kind.backing_label,
            opened.id,
            slots,
            opened.kind.label,
            len(waiting),
        )
        self._view.update()
        for slot, slot_request in enumerate(waiting):
            self._slot_requests.place(slot_request, node, slot)

    # -- what was left behind --

    def sweep(self) -> None:
        """Release locks of this provider on nodes that are no backing nodes (any more).

        Our own writes leave none. Older launchers lock, mark and unlock one after the other, and may be killed in
        between; and somebody may have changed a backing node by hand. What looks so in two sweeps is so.
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
        if node_id in self._view.entries or self._view.guests_of(node_id) or not self._zk.isNodeLocked(node):
            return False
        if data is not None and self._zk.nodes.existing(user for user in data.nodes if user is not None):
            return False
        if node.state == states.READY and node.allocated_to and self._requests.look(node.allocated_to) is not None:
            return False
        holder = self._zk.nodes.lock_holder(node_id)
        return holder is not None and holder[1] == self._owner
