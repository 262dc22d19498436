# SPDX-License-Identifier: Apache-2.0
"""`PoolWorkerStandIn`: serves one request at a time, as the launcher's pool worker does."""

from __future__ import annotations

import threading
from typing import Any

from nodepool.clock import monotonic
from nodepool.driver.handler import NodeRequestHandler
from nodepool.driver.interface import Provider
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.reasons import Reason
from nodepool.model.request import NodeRequest
from nodepool.model.status import RUNNING, PoolComponent
from nodepool.plan.promotion import Trial
from nodepool.plan.triage import PoolInfo, ReadyNodes, is_free
from nodepool.testing.memory_zk import MemoryZooKeeper

#: The longest time between two looks at a handler, for drivers that do not call ``pw.wake()``.
POLL_SECONDS = 1.0


class PoolWorkerStandIn:
    """What a request handler sees as ``pw``, and the loop around it.

    Registers itself as a pool. Methods that do not say otherwise belong to one thread.

    :param provider: started.
    """

    def __init__(self, zk: MemoryZooKeeper, provider: Provider, pool_name: str, launcher_id: str = "stand-in") -> None:
        self.launcher_id = launcher_id
        self.ready_nodes = ReadyNodes()
        #: How often a handler asked for room.
        self.evictions = 0
        #: Node -> why its last attempt failed.
        self.launch_errors: dict[str, str] = {}
        self._zk = zk
        self._provider = provider
        self._pool_name = pool_name
        self._woken = threading.Event()
        self.consoles: dict[str, str] = {}
        component = PoolComponent("localhost", "test")
        component.id = launcher_id
        component.name = pool_name
        component.provider_name = provider.name
        component.state = RUNNING
        component.supported_labels = sorted(provider.provider.getSupportedLabels(pool_name))
        zk.pools.append(component)

    # -- what a handler sees --

    def getZK(self) -> MemoryZooKeeper:
        return self._zk

    def getProviderManager(self) -> Provider:
        return self._provider

    def getProviderConfig(self) -> Any:
        return self._provider.provider

    def getPoolConfig(self) -> Any:
        return self._provider.provider.pools[self._pool_name]

    @property
    def nodepool(self) -> Any:
        """For drivers written for 11.0.0: what they may ask of their launcher."""
        from nodepool.compat.modules import LauncherView

        return LauncherView(self._zk, {self._provider.name: self._provider}.get)

    def wake(self) -> None:
        """A launch ended, or something changed. Any thread; does not block."""
        self._woken.set()

    def launch_ended(self, node: Node, result: str, text: str = "") -> None:
        self.launch_errors[node.key] = text

    def keep_console(self, node: Node, text: str) -> None:
        self.consoles[node.key] = text

    def launch_error(self, node: Node) -> str:
        return self.launch_errors.get(node.key, "")

    def trial(self, _label: str, _image: str, _request: NodeRequest) -> None:
        return None

    def trial_ended(self, _node: Node, _trial: Trial, _error: Exception | None, _seconds: float) -> None:
        return None

    def evict(self, *, shared: bool = False) -> None:
        self.evictions += 1

    def absent_pools(self) -> list[PoolInfo]:
        return []

    def declines_of_others(self, _request_id: str) -> dict[str, Reason | None]:
        return {}

    def provider_replaced(self) -> bool:
        return False

    def tenant_has_place(self, _node: Node, *, reused: bool = False) -> bool:
        return True

    def set_aside(self, node: Node) -> None:
        self.ready_nodes.discard(node.key)

    # -- serving --

    def submit(self, *labels: str) -> NodeRequest:
        """Store a request as Zuul would, and return it as the pool worker reads it."""
        request = NodeRequest()
        request.node_types = list(labels)
        request.requestor = "contract"
        self._zk.storeNodeRequest(request)
        found = self._zk.getNodeRequest(request.key)
        if found is None:
            raise RuntimeError(f"request {request.id} vanished")
        return found

    def accept(self, request: NodeRequest) -> NodeRequestHandler:
        """Lock a request, mark it `pending` and let its handler begin."""
        request.state = states.PENDING
        self._zk.requests.send_lock(request)()
        handler = self._provider.getRequestHandler(self, request)
        self._run(handler)
        return handler

    def finish(self, handler: NodeRequestHandler, timeout: float) -> NodeRequest:
        """Poll a handler until it is done; returns the request as it is stored then.

        :param timeout: seconds.
        :raises TimeoutError: it is not done by then.
        """
        self.drive(handler, timeout)
        stored = self._zk.getNodeRequest(handler.request.key)
        if stored is None:
            raise RuntimeError(f"request {handler.request.id} vanished")
        return stored

    def drive(self, handler: NodeRequestHandler, timeout: float) -> None:
        """Poll a handler until it is done, at most ``timeout`` seconds. Raises TimeoutError."""
        deadline = monotonic() + timeout
        while not handler.done:
            self._woken.clear()
            if handler.unfinished:
                self._run(handler)
            if not handler.poll():
                left = deadline - monotonic()
                if left <= 0:
                    raise TimeoutError(f"{handler.request} is not done after {timeout:g} s")
                self._woken.wait(min(POLL_SECONDS, left))

    def serve(self, *labels: str, timeout: float) -> tuple[NodeRequest, list[Node]]:
        """Submit a request and see it through: the stored request, and its nodes.

        :param timeout: seconds.
        """
        request = self.finish(self.accept(self.submit(*labels)), timeout)
        nodes = [self._zk.getNode(node_id) for node_id in request.nodes]
        return request, [node for node in nodes if node is not None]

    def _run(self, handler: NodeRequestHandler) -> None:
        self.ready_nodes.clear()
        for node in self._zk.nodeIterator():
            if is_free(node, self._provider.name, self._pool_name) and not self._zk.isNodeLocked(node):
                self.ready_nodes.put(node)
        handler.run()
