# SPDX-License-Identifier: Apache-2.0
"""A driver whose launches end when the test says so, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodepool.config.objects import Config, Label
from nodepool.driver.fake import FakeProviderConfig
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.interface import Provider
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.plan.triage import is_free
from nodepool.testing.memory_zk import MemoryZooKeeper
from nodepool.testing.pool_worker import PoolWorkerStandIn


class ScriptedHandler(NodeRequestHandler):
    """Launches are in ``launched`` until they are in ``ended``."""

    manager: ScriptedProvider

    def __init__(self, pw: Any, request: NodeRequest) -> None:
        super().__init__(pw, request)
        self.launched: list[Node] = []
        self.ended: list[Node] = []
        self.reused: list[Node] = []

    @property
    def alive_thread_count(self) -> int:
        return len(self.launched) - len(self.ended)

    def imagesAvailable(self) -> bool:
        return self.manager.images

    def hasProviderQuota(self, node_types: list[str]) -> bool:
        return len(node_types) <= self.manager.limit

    def hasRemainingQuota(self, ntype: str) -> bool:
        return self.manager.room > len(self.launched)

    def checkReusableNode(self, node: Node) -> bool:
        return node.id not in self.manager.refused

    def nodeReusedNotification(self, node: Node) -> None:
        self.reused.append(node)

    def launch(self, node: Node) -> None:
        if self.manager.launch_error is not None:
            raise self.manager.launch_error
        self.launched.append(node)

    def launchesComplete(self) -> bool:
        return self.alive_thread_count == 0

    def is_paused(self) -> bool:
        """A call, because mypy does not know that `run` changes the attribute."""
        return self.paused

    def end(self, number: int, state: str, *, stored: bool = True) -> None:
        """End a launch.

        :param number: of the launch, from 0.
        :param stored: was the outcome written?
        """
        node = self.launched[number]
        node.state = state
        if stored:
            self.zk.storeNode(node)
        self.ended.append(node)


class ScriptedProvider(Provider):
    """Knobs of what its handlers answer."""

    def __init__(self, config: Any) -> None:
        self.provider = config
        self.name = config.name
        self.images = True
        self.limit = 100
        self.room = 100
        self.refused: set[str | None] = set()
        self.launch_error: Exception | None = None
        self.broken: list[str] = []
        #: In front of the id of a node, the id of its instance; "" = that is not known in advance.
        self.prefix = ""

    def start(self, zk_conn: Any) -> None:
        self.zk = zk_conn

    def stop(self) -> None:
        """Nothing runs."""

    def join(self) -> None:
        """Nothing runs."""

    def labelReady(self, name: Any) -> bool:
        return True

    def idInAdvance(self, node: Node) -> str | None:
        return f"{self.prefix}{node.id}" if self.prefix else None

    def cleanupNode(self, node_id: Any) -> None:
        """There are no machines."""

    def waitForNodeCleanup(self, node_id: Any) -> None:
        """There are no machines."""

    def cleanupLeakedResources(self) -> None:
        """There are no machines."""

    def getRequestHandler(self, poolworker: Any, request: NodeRequest) -> ScriptedHandler:
        return ScriptedHandler(poolworker, request)

    def listNodes(self) -> list[Any]:
        return []

    def errorLabels(self) -> list[str]:
        return self.broken


class Stage(PoolWorkerStandIn):
    """A pool ``main`` of provider ``one`` with labels ``small`` and ``big``, on a ZooKeeper in memory."""

    def __init__(
        self, make: Callable[[Any], ScriptedProvider] = ScriptedProvider, pool: dict[str, Any] | None = None
    ) -> None:
        config = Config()
        config.labels = {name: Label(name) for name in ("small", "big")}
        labels = [{"name": "small"}, {"name": "big"}]
        self.config = FakeProviderConfig(
            {"name": "one", "driver": "fake", "pools": [{"name": "main", "labels": labels, **(pool or {})}]}
        )
        self.config.load(config)
        self.zk = MemoryZooKeeper()
        self.provider = make(self.config)
        self.provider.start(self.zk)
        super().__init__(self.zk, self.provider, "main")
        self.replaced = False
        #: Of the last request that was taken.
        self.handler: ScriptedHandler
        self.aside: list[Node] = []

    def provider_replaced(self) -> bool:
        return self.replaced

    def set_aside(self, node: Node) -> None:
        self.aside.append(node)
        super().set_aside(node)

    def begin(self, *labels: str, **fields: Any) -> ScriptedHandler:
        """Submit a request, take it, and let its handler gather for the first time."""
        return self.take(self.submit(*labels), **fields)

    def take(self, request: NodeRequest, **fields: Any) -> ScriptedHandler:
        """`begin` for a request that is submitted already."""
        for name, value in fields.items():
            setattr(request, name, value)
        request.state = states.PENDING
        self.zk.requests.send_lock(request)()
        handler = self.handler = self.provider.getRequestHandler(self, request)
        handler.run()
        return handler

    def add_ready(self, *labels: str, **fields: Any) -> Node:
        node = Node(list(labels or ["small"]))
        node.state, node.provider, node.pool = states.READY, "one", "main"
        for name, value in fields.items():
            setattr(node, name, value)
        self.zk.storeNode(node)
        if is_free(node, "one", "main"):
            self.ready_nodes.put(node)
        return node

    def request(self, handler: NodeRequestHandler) -> NodeRequest:
        """The request as it is stored."""
        found = self.zk.getNodeRequest(handler.request.key)
        assert found is not None
        return found

    def nodes(self) -> list[tuple[str, str | None, bool]]:
        """State, allocation and lock of each node as it is stored."""
        return [(node.state, node.allocated_to, self.zk.isNodeLocked(node)) for node in self.zk.nodeIterator()]
