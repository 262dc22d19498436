# SPDX-License-Identifier: Apache-2.0
"""`BeginPhase`: find the image and make the machine (rule L-1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nodepool.driver.statemachine import metadata, node_fields
from nodepool.driver.statemachine.phases.phase import LaunchOrder, NodeWrites
from nodepool.plan import launch_attempt as plan

if TYPE_CHECKING:
    from nodepool.driver.config import LabelSettings
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.driver.statemachine.machine import StateMachine


class BeginPhase:
    """Result: ``machine``.

    :param image_of: external id of the image of a label, and the ``image_id`` of its nodes; see `StateMachineProvider`.
    :param make_machine: `Adapter.getCreateStateMachine`.
    """

    name = "begin"

    def __init__(
        self,
        order: LaunchOrder,
        zk: NodeWrites,
        image_of: Callable[[LabelSettings], tuple[Any, str | None]],
        make_machine: Callable[..., StateMachine],
        log: Log,
    ) -> None:
        self._order = order
        self._zk = zk
        self._image_of = image_of
        self._make_machine = make_machine
        self._log = log
        self.machine: StateMachine

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.phases.phase.Phase`."""
        order = self._order
        if not self._zk.surelyLocked(order.node):
            # Cut off from ZooKeeper: the node may be deleted by somebody else just now, and its place filled.
            return plan.PACE.longest_seconds
        image_id, image_name = self._image_of(order.label)
        order.node.image_id = image_name
        self.machine = self._make_machine(
            node_fields.hostname(order.node.id),
            order.label,
            image_id,
            metadata.for_node(order.node.key, order.pool.name, order.settings.name),
            order.request,
            order.node.az,
            self._log,
        )
        return None
