# SPDX-License-Identifier: Apache-2.0
"""`CleanPhase`: before another attempt, what the last one made must be deleted (rule L-4)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from nodepool.driver.statemachine.phases.phase import NodeWrites
from nodepool.driver.statemachine.removal import RETRY, Removal
from nodepool.exceptions import ServerCreateTimeoutException
from nodepool.guard import settle

if TYPE_CHECKING:
    from nodepool.driver.framework.held_time import TimeLimit
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.node import Node


class CleanPhase:
    """Deletes the instance that the node names, then the others. A deletion that fails is begun again after a pause.

    :param others: external ids; one that was deleted is taken out.
    :param worth_repeating: gets the error of a deletion; False = the phase fails with that.
    :param removal_of: begins to delete an instance.
    :param limit: of the next attempt, which has not begun when it is over.
    """

    name = "clean"

    def __init__(
        self,
        node: Node,
        zk: NodeWrites,
        others: list[Any],
        removal_of: Callable[[Any], Removal],
        worth_repeating: Callable[[BaseException], bool],
        limit: TimeLimit,
        log: Log,
    ) -> None:
        self._node = node
        self._zk = zk
        self._others = others
        self._removal_of = removal_of
        self._worth_repeating = worth_repeating
        self._limit = limit
        self._log = log
        self._removal: Removal | None = None
        self._failures = 0

    def step(self) -> float | None:
        """See `nodepool.driver.statemachine.phases.phase.Phase`."""
        while (target := self._target()) is not None:
            left = self._limit.left
            if left <= 0:
                raise ServerCreateTimeoutException("the previous instance was not deleted within launch-timeout")
            if self._removal is None:
                self._log.info("Deleting instance %s before the next attempt", target)
                self._removal = self._removal_of(target)
            step: Future[float | None] = Future()
            settle((step,), self._removal.step)
            error = step.exception()
            if error is None:
                wait = step.result()
            elif not self._worth_repeating(error):
                raise error
            else:
                self._log.warning("Instance %s could not be deleted, trying again: %s", target, error)
                self._removal = None
                self._failures += 1
                wait = RETRY.pause(self._failures)
            if wait is not None:
                return min(wait, left)
            self._removal = None
            if self._node.external_id is None:
                self._others.pop()
            else:
                self._node.external_id = None
                self._zk.storeNode(self._node)
        return None

    def _target(self) -> Any:
        """What is deleted now; None = nothing is left."""
        if self._node.external_id is not None:
            return self._node.external_id
        return self._others[-1] if self._others else None
