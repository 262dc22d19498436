# SPDX-License-Identifier: Apache-2.0
"""`StateMachineHandler`: one request that is served with instances of a cloud."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.statemachine import record
from nodepool.driver.statemachine.launch import Launch
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.driver.handler import PoolWorkerView
    from nodepool.driver.statemachine.provider import StateMachineProvider
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest


class StateMachineHandler(NodeRequestHandler):
    """All methods are called by the pool worker's thread; none of them waits for the cloud."""

    manager: StateMachineProvider

    def __init__(self, pw: PoolWorkerView, request: NodeRequest) -> None:
        super().__init__(pw, request)
        self._launches: list[Launch] = []
        self._az: str | None = None
        self._az_chosen = False

    @property
    def alive_thread_count(self) -> int:
        """Launches in progress; their number has nothing to do with threads here."""
        return sum(1 for launch in self._launches if not launch.complete)

    def imagesAvailable(self) -> bool:
        labels = self.pool.labels
        return all(self.manager.labelReady(labels[name]) for name in set(self.request.node_types))

    def hasProviderQuota(self, node_types: list[str]) -> bool:
        return self.manager.canEverFit(self.pool, node_types)

    def hasRemainingQuota(self, ntype: str) -> bool:
        return not self.manager.calls.resting and self.manager.roomForOne(self.pool, ntype)

    def checkReusableNode(self, node: Node) -> bool:
        """Only in the zones of the pool, and all in the same one (N-7)."""
        if self.pool.azs and node.az not in self.pool.azs:
            return False
        return self._az is None or node.az is None or node.az == self._az

    def nodeReusedNotification(self, node: Node) -> None:
        """The others go where this one is."""
        if node.az is not None and self._az is None:
            self._az = node.az
            self._az_chosen = True

    def setNodeMetadata(self, node: Node) -> None:
        """Everything that is known before the launch is stored with the node (L-1)."""
        if node.az is None:
            if not self._az_chosen:
                self._az = random.choice(self.manager.zones(self.pool))
                self._az_chosen = True
            node.az = self._az
        record.describe(node, self.pool.labels[node.type[0]])

    def launch(self, node: Node) -> None:
        if not self.manager.hasPlace(self.pool, node):
            self.log.info("Node %s has no place: somebody else took the room at the same time", node.id)
        elif self._begin(node):
            return
        # Not the request's fault: it gets another one (L-7).
        node.state = states.ABORTED
        self.zk.storeNode(node)

    def _begin(self, node: Node) -> bool:
        launch = Launch(self.manager, self, node)
        if not self.manager.begin_launch(launch):
            return False
        self._launches.append(launch)
        return True

    def launchesComplete(self) -> bool:
        return self.alive_thread_count == 0
