# SPDX-License-Identifier: Apache-2.0
"""Gathering the nodes of one request: reuse ready ones, launch the others (rules N)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from logging import DEBUG
from typing import TYPE_CHECKING

from nodepool.driver import gateway
from nodepool.driver.framework.node_ahead import NodeAhead
from nodepool.driver.framework.quota_support import QuotaSupport, QuotaUnknown
from nodepool.exceptions import RuntimeConfigurationException, ZKConflict, ZKConnectionError, ZKException
from nodepool.guard import Guard
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.reasons import NO_ROOM, Reason, ReasonCode
from nodepool.plan.failures import launch_outcome
from nodepool.zk.locks import ZkLock

if TYPE_CHECKING:
    from nodepool.driver.framework.handler_hooks import HandlerHooks
    from nodepool.model.request import NodeRequest


class NoPlace(Exception):
    """Other launchers took the room at the same time; what is there would be in their way.

    :param tenant: whose limits are reached.
    """

    def __init__(self, tenant: str | None) -> None:
        self.reason = Reason(ReasonCode.ROOM_TENANT, f"others took the room that was left to tenant {tenant}")
        super().__init__(self.reason.text)


class NodeSet:
    """The positions of ``request.node_types`` and the locked node of each, if there is one yet.

    :param hooks: what the driver says of the request.
    """

    def __init__(self, hooks: HandlerHooks) -> None:
        self._hooks = hooks
        self._nodes: list[Node | None] = [None] * len(hooks.request.node_types)
        #: The node of a set of one, on its way already.
        self._ahead: NodeAhead | None = None

    @property
    def nodes(self) -> list[Node]:
        return [node for node in self._nodes if node is not None]

    def replace(self, nodes: Sequence[Node]) -> None:
        """Have these nodes, each locked by us, in the order of the positions; the others are missing."""
        self._nodes = [*nodes, *[None] * (len(self._hooks.request.node_types) - len(nodes))]

    def _missing(self) -> list[int]:
        return [position for position, node in enumerate(self._nodes) if node is None]

    def next_label(self) -> str | None:
        """What is made next if no ready node is there; None = nothing is missing."""
        missing = self._missing()
        return self._hooks.request.node_types[missing[0]] if missing else None

    def full_pool(self) -> str | None:
        """Name of the pool if `gather` stopped at its own limits; None = at what pools share, as far as known."""
        hooks, label = self._hooks, self.next_label()
        if label is None or not isinstance(hooks.manager, QuotaSupport):
            return None
        try:
            return None if hooks.manager.poolHasRoom(hooks.pool, label) else hooks.pool.name
        except QuotaUnknown:
            return None

    def why_no_room(self) -> Reason:
        """What `gather` stopped at, as far as known."""
        hooks, label = self._hooks, self.next_label()
        if label is None:
            return NO_ROOM
        resting = gateway.paused_reason(hooks.manager)
        if resting is not None:
            return Reason(ReasonCode.PROVIDER_CIRCUIT_OPEN, resting)
        # Nothing depends on the answer: a request is not declined because a driver cannot say what is used up.
        with Guard(hooks.log, "What is used up is not known", but=ZKConnectionError, level=DEBUG):
            try:
                return hooks.why_no_room(label)
            except QuotaUnknown as unknown:
                return Reason(ReasonCode.QUOTA_UNKNOWN, f"what a node with label {label} needs is not known: {unknown}")
        return NO_ROOM

    def gather(self) -> bool:
        """Fill what is missing; False = no room for the rest now. Blocks for a few round trips a node.

        :raises NoPlace: the request is to be given back.
        """
        if self._hooks.request.reuse:
            self._reuse()
        for position in self._missing():
            label = self._hooks.request.node_types[position]
            # What is on its way has its room, and counts already.
            if self._ahead is None and not gateway.has_remaining_quota(self._hooks, label):
                return False
            self._make(position, label)
        # Ready nodes may have come instead of it.
        self.drop_ahead()
        return True

    # -- many sets at once --

    def begin_ahead(self) -> Node | None:
        """The node of a set of one, for which there is room: it is to be stored with the lock of the request.

        None = there is none. A set whose request was not locked is not used any more.
        """
        hooks = self._hooks
        # It is met again, and judged, when the set is gathered.
        with Guard(hooks.log, "No node is begun", level=DEBUG, traceback=False):
            node = self._new_node(hooks.request.node_types[0])
            # What cannot be stored must not get into the way of the lock.
            hooks.zk.nodes.encode(node)
            self._ahead = NodeAhead(hooks.zk.nodes, node, self._announce)
            return node
        return None

    def lock_ahead(self) -> None:
        """Go on with it. Does not block."""
        if self._ahead is not None:
            self._ahead.lock(self._request_lock())

    def drop_ahead(self) -> None:
        """Remove what was begun, and was not needed after all."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        try:
            self._hooks.zk.deleteNode(ahead.take())
        except ZKException as problem:
            self._hooks.log.warning("A node that is not needed was not removed: %s", problem)

    # -- ready nodes --

    def can_reuse_all(self) -> bool:
        """Are there ready nodes for all that is missing?"""
        missing = self._missing()
        if not self._hooks.request.reuse:
            return False
        chosen = self._choose(missing)
        wanted = self._hooks.request.node_types
        return len(chosen) == len(missing) and not any(
            self._is_too_large(found, wanted[missing[index]]) for index, found in chosen.items()
        )

    def _choose(self, missing: list[int]) -> dict[int, Node]:
        """Ready nodes for some positions: index in ``missing`` -> node."""
        wanted = [self._hooks.request.node_types[position] for position in missing]
        zone = next((node.az for node in self.nodes if node.az), None)
        return self._hooks.pw.ready_nodes.choose(wanted, zone)

    def _reuse(self) -> None:
        ready_nodes = self._hooks.pw.ready_nodes
        too_large: list[Node] = []
        try:
            while missing := self._missing():
                chosen = self._choose(missing)
                if not chosen:
                    return
                for index, found in chosen.items():
                    # Taken or not: this record is out of date now. An event brings it back if it is still free.
                    ready_nodes.discard(found.key)
                    if self._is_too_large(found, self._hooks.request.node_types[missing[index]]):
                        too_large.append(found)
                    elif self._take(missing[index], found):
                        gateway.node_reused_notification(self._hooks, found)
        finally:
            for node in too_large:
                # For other tenants.
                ready_nodes.put(node)

    def _is_too_large(self, found: Node, label: str) -> bool:
        """Would the tenant have too much with a ready node, while there is room for a new one of the label?

        Flavors change, and clouds count what nobody announced. That room is there for new nodes was made sure of
        before the request was taken.
        """
        hooks = self._hooks
        if isinstance(hooks.manager, QuotaSupport):
            try:
                needed = gateway.quota_needed_by_label(hooks.manager, label, hooks.pool)
            except (QuotaUnknown, RuntimeConfigurationException):
                return False
            if found.resources == needed.get_resources():
                return False
        node = found.copy()
        allocate(node, hooks.request)
        return not hooks.pw.tenant_has_place(node, reused=True)

    def _take(self, position: int, found: Node) -> bool:
        """Lock and mark one ready node (N-3).

        :raises NoPlace: with it the tenant would have too much.
        """
        hooks = self._hooks
        good = False
        try:
            good = gateway.start_reusable_node_check(hooks, found).result()
        finally:
            # Whatever a driver raises: nothing else would bring the node back.
            if not good:
                hooks.pw.set_aside(found)
        if not good:
            return False
        node = found.copy()
        allocate(node, hooks.request)
        try:
            hooks.zk.nodes.lock_and_save(node, under=self._request_lock())
        except ZKConnectionError:
            raise
        except ZKConflict as conflict:
            hooks.log.debug("Node %s was taken by somebody else: %s", node.id, conflict)
            return False
        self._nodes[position] = node
        if not hooks.pw.tenant_has_place(node, reused=True):
            raise NoPlace(node.tenant_name)
        hooks.log.debug("Took ready node %s", node.id)
        return True

    def _request_lock(self) -> ZkLock | None:
        """The lock under which nodes are written for the request (N-3, N-6).

        A driver may take so long to answer that the session is lost meanwhile, and somebody else serves the request.
        """
        lock = self._hooks.request.lock
        return lock if isinstance(lock, ZkLock) else None

    # -- new nodes --

    def _make(self, position: int, label: str) -> None:
        """Create, lock and start to launch one node (N-6)."""
        hooks = self._hooks
        ahead, self._ahead = self._ahead, None
        node = self._new_node(label) if ahead is None else ahead.take()
        if ahead is None:
            under = self._request_lock()
            hooks.zk.nodes.create(node, under=under)
            node.state = states.BUILDING
            self._announce(node)
            hooks.zk.nodes.lock_and_save(node, under=under)
        # Whatever happens now, the set knows what it holds locked.
        self._nodes[position] = node
        if not hooks.pw.tenant_has_place(node):
            self._nodes[position] = None
            hooks.zk.deleteNode(node)
            raise NoPlace(node.tenant_name)
        hooks.log.info("Launching node %s for %s", node.id, label)
        try:
            gateway.launch(hooks, node)
        except Exception as error:
            # Whatever a driver raises, the node has an outcome, and the request goes on with that.
            if hooks.pw.provider_replaced():
                hooks.log.info("Node %s is launched later, by another provider object: %s", node.id, error)
                node.state = states.ABORTED
            else:
                hooks.log.exception("Node %s could not be launched", node.id)
                node.state, _ = launch_outcome(error)
            hooks.zk.storeNode(node)

    def _new_node(self, label: str) -> Node:
        hooks = self._hooks
        node = Node(label)
        node.provider = hooks.provider.name
        node.pool = hooks.pool.name
        node.launcher = hooks.launcher_id
        node.attributes = copy.deepcopy(hooks.pool.node_attributes)
        node.az = next((other.az for other in self.nodes if other.az), None)
        if isinstance(hooks.manager, QuotaSupport):
            # From the first write on the node counts, for quota and for its tenant.
            node.resources = gateway.quota_needed_by_label(hooks.manager, label, hooks.pool).get_resources()
        allocate(node, hooks.request)
        gateway.set_node_metadata(hooks, node)
        return node

    def _announce(self, node: Node) -> None:
        """Whoever finds the node after a crash knows how its instance is called, if its id says so."""
        node.external_id = gateway.id_in_advance(self._hooks.manager, node)

    def drop_aborted(self) -> None:
        """Let go of nodes that the cloud had no room for; unlocked, they are removed (L-7)."""
        hooks = self._hooks
        for position, node in enumerate(self._nodes):
            if node is not None and node.state == states.ABORTED:
                try:
                    gateway.let_go_of_aborted(hooks, node)
                except ZKConflict as conflict:
                    # The session was lost a moment ago.
                    hooks.log.debug("Node %s is somebody else's now: %s", node.id, conflict)
                # Not before: after another error nobody else knows that the node is locked.
                self._nodes[position] = None


def allocate(node: Node, request: NodeRequest) -> None:
    """Say for whom a node is (N-3)."""
    node.allocated_to = request.id
    node.request_event_id = request.event_id
    node.tenant_name = request.tenant_name
    node.requestor = request.requestor
