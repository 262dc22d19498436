# SPDX-License-Identifier: Apache-2.0
"""`LookPhase`: after a failure, what did the attempt leave in the cloud?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from nodepool.driver.statemachine.finder import Search
from nodepool.plan import launch_attempt as plan

if TYPE_CHECKING:
    from nodepool.driver.framework.held_time import TimeLimit
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.node import Node


class CloudHealth(Protocol):
    """What the phase uses of `nodepool.driver.statemachine.calls.CloudCalls`."""

    @property
    def circuit_open(self) -> bool: ...


class LookPhase:
    """Results: ``found``, external ids of instances that nobody told us of; ``cloud_away``, the cloud did not answer.

    Two instances for one node must never be. And it shows whether the cloud is there at all.

    :param search: of instances of the node.
    :param limit: how long to ask a cloud that does not answer.
    """

    name = "search"

    def __init__(
        self,
        node: Node,
        search: Search,
        health: CloudHealth,
        limit: TimeLimit,
        log: Log,
    ) -> None:
        self._node = node
        self._search = search
        self._health = health
        self._limit = limit
        self._log = log
        self.found: list[Any] = []
        self.cloud_away = False

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.phases.phase.Phase`. Does not raise what the cloud raises."""
        try:
            wait = self._search.step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the cloud has not answered
            if self._health.circuit_open or self._limit.left <= 0:
                self.cloud_away = True
                return None
            self._log.warning("Instances cannot be listed, asking again: %s", error)
            return plan.PACE.longest_seconds
        if wait is not None:
            return wait
        self.found = [external_id for external_id in self._search.found if external_id != self._node.external_id]
        for external_id in self.found:
            self._log.warning("The creation gave no answer, but there is instance %s", external_id)
        return None
