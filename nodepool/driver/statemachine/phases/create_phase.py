# SPDX-License-Identifier: Apache-2.0
"""`CreatePhase`: advance the machine until the instance is complete, and take over what it says (rule L-3)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nodepool.driver.statemachine import node_fields
from nodepool.driver.statemachine.phases.phase import LaunchOrder, NodeWrites
from nodepool.driver.statemachine.removal import Driven
from nodepool.exceptions import LaunchNetworkException, LaunchStatusException, ServerCreateTimeoutException

if TYPE_CHECKING:
    from nodepool.driver.framework.held_time import TimeLimit
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.driver.statemachine.instance import Instance
    from nodepool.driver.statemachine.machine import StateMachine


def waits_for(machine: StateMachine) -> str:
    """What a machine says that it waits for, to be added to an error."""
    said = getattr(machine, "waits_for", "")
    return f": {said}" if said else ""


class CreatePhase:
    """Result: the fields of the node.

    :param worked: notified when the cloud did what it was asked.
    :param limit: of the attempt.
    :param id_in_advance: what ZooKeeper has as the id of the instance already; the node says it when the machine does.
    """

    def __init__(
        self,
        order: LaunchOrder,
        zk: NodeWrites,
        driven: Driven,
        worked: Callable[[], None],
        limit: TimeLimit,
        log: Log,
        id_in_advance: Any = None,
    ) -> None:
        self._order = order
        self._zk = zk
        self._driven = driven
        self._worked = worked
        self._limit = limit
        self._log = log
        self._id_in_advance = id_in_advance

    @property
    def name(self) -> str:
        machine = self._driven.machine
        if machine.external_id and not getattr(machine, "announced", False):
            return "build"
        return "call" if getattr(machine, "calling", False) else "wait"

    @property
    def text(self) -> str:
        """Where the machine is, or what it says that it waits for."""
        machine = self._driven.machine
        return str(getattr(machine, "waits_for", "") or machine.state)

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.phases.phase.Phase`."""
        machine = self._driven.machine
        left = self._limit.left
        if left <= 0:
            raise ServerCreateTimeoutException(
                f"no instance within launch-timeout of {self._order.launch_timeout:g} s, "
                f"it got as far as {machine.state!r}{waits_for(machine)}"
            )
        instance, wait = self._advance()
        if wait <= 0 and getattr(machine, "announced", False) and not machine.complete:
            # It only said how the instance will be called. That is stored, and no other thread need wake to go on.
            instance, wait = self._advance()
        if not machine.complete:
            return min(wait, max(0.0, left))
        self._worked()
        if instance is None:
            raise LaunchStatusException("the driver said that the instance is complete, but not what it is")
        self._take(instance)
        return None

    def _advance(self) -> tuple[Instance | None, float]:
        """Advance the machine once; seconds until the next time."""
        try:
            return self._driven.advance()
        finally:
            self._store_id()

    def _store_id(self) -> None:
        """L-3: store the id at once. Whoever finds the node after a crash knows what to delete.

        An empty object is no id yet. The driver fills it in by and by: what is stored must not change with it.
        """
        node, machine = self._order.node, self._driven.machine
        external_id = machine.external_id
        if not external_id and node.external_id and getattr(machine, "begun_anew", 0):
            # The instance is gone, and another one is ordered: whoever finds the node must look for that one.
            node.external_id = None
            self._zk.storeNode(node)
            return
        if not external_id or external_id == node.external_id:
            return
        node.external_id = copy.deepcopy(external_id)
        if getattr(machine, "announced", False):
            self._log.debug("Instance %s is going to be created", external_id)
        else:
            self._log.info("Instance %s was created", external_id)
            self._worked()
        if external_id != self._id_in_advance:
            self._zk.storeNode(node)
        # What is stored later replaces it.
        self._id_in_advance = None

    def _take(self, instance: Instance) -> None:
        node = self._order.node
        node_fields.take_instance(node, instance, self._order.pool)
        if node.interface_ip is None and getattr(instance, "has_address", True):
            raise LaunchNetworkException(f"instance {node.external_id} has no address that could be used")
