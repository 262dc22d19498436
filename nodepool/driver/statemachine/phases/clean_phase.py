# SPDX-License-Identifier: Apache-2.0
"""`CleanPhase`: before another attempt, what the last one made must be deleted (rule L-4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nodepool.driver.statemachine.phases.phase import NodeWrites
from nodepool.driver.statemachine.removal import Removal
from nodepool.exceptions import ServerCreateTimeoutException

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.node import Node


class CleanPhase:
    """Deletes the instance that the node names, then the others.

    :param others: external ids; one that is begun with is taken out.
    :param removal_of: begins to delete an instance.
    :param deadline: when the next attempt ends, monotonic seconds: it has not begun then.
    """

    def __init__(
        self,
        node: Node,
        zk: NodeWrites,
        others: list[Any],
        removal_of: Callable[[Any], Removal],
        deadline: float,
        clock: Callable[[], float],
        log: Log,
    ) -> None:
        self._node = node
        self._zk = zk
        self._others = others
        self._removal_of = removal_of
        self._deadline = deadline
        self._clock = clock
        self._log = log
        self._removal: Removal | None = None

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.phases.phase.Phase`."""
        while True:
            if self._removal is None:
                if self._node.external_id is not None:
                    target = self._node.external_id
                elif self._others:
                    target = self._others.pop()
                else:
                    return None
                self._log.info("Deleting instance %s before the next attempt", target)
                self._removal = self._removal_of(target)
            left = self._deadline - self._clock()
            if left <= 0:
                raise ServerCreateTimeoutException("the previous instance was not deleted within launch-timeout")
            wait = self._removal.step()
            if wait is not None:
                return min(wait, left)
            self._removal = None
            if self._node.external_id is not None:
                self._node.external_id = None
                self._zk.storeNode(self._node)
