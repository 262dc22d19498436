# SPDX-License-Identifier: Apache-2.0
"""`EndPhase`: store how a launch ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodepool.driver.statemachine.phases.phase import NodeWrites
from nodepool.exceptions import ZKConflict
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.driver.statemachine.adapter import Log
    from nodepool.model.node import Node


class EndPhase:
    """Results: ``node.state``; ``error``, why it could not be stored.

    :param state: of the node: `ready`, `failed` or `aborted`.
    """

    name = "end"

    def __init__(self, node: Node, zk: NodeWrites, state: str, log: Log) -> None:
        self._node = node
        self._zk = zk
        self._state = state
        self._log = log
        self.error: Exception | None = None

    def step(self) -> None:
        """See `nodepool.driver.statemachine.phases.phase.Phase`.

        :raises ZKConflict: somebody took the node.
        """
        self._node.state = self._state
        try:
            self._zk.storeNode(self._node)
        except ZKConflict:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the launch is over
            # ZooKeeper is lost (L-9), or the driver put something into the node that cannot be stored.
            self._log.warning("The outcome could not be stored: %s: %s", type(error).__name__, error)
            self._node.state = states.FAILED
            self.error = error
