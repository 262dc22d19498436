# SPDX-License-Identifier: Apache-2.0
"""The client of the simulated world: asks for nodes, takes them, uses them, gives them back, as Zuul does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nodepool.exceptions import ZKException
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.model.status import Maintenance, Mode
from nodepool.zk.zookeeper import ZooKeeper
from tests.model.process import Process, Turn

if TYPE_CHECKING:
    from tests.model.world import World


class Zuul(Process):
    """One client. Its jobs run one after the other, each in as many steps as it has calls."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.zk = ZooKeeper(self.client, None)
        #: Requests that wait, by id.
        self.waiting: dict[str, NodeRequest] = {}
        #: request id -> its nodes, locked and in use.
        self.held: dict[str, list[Node]] = {}
        self._jobs: list[tuple[str, Callable[[], None]]] = []
        self._busy = False
        self.do("start", self.client.connect)

    @property
    def idle(self) -> bool:
        return not self._busy and not self._jobs

    def turns(self) -> Iterator[Turn]:
        if self._jobs and not self._busy and not self.dead:
            yield f"{self.name}.job", self._begin

    def do(self, name: str, work: Callable[[], None]) -> None:
        self._jobs.append((name, work))

    def _begin(self) -> None:
        name, work = self._jobs.pop(0)
        self._busy = True

        def run() -> None:
            work()
            self._busy = False

        self.world.spawn(f"{self.name}.{name}", self, run)

    # -- what it can be asked to do --

    def submit(self, labels: list[str], tenant: str | None = None) -> None:
        self.do("submit", lambda: self._submit(labels, tenant))

    def take(self) -> None:
        self.do("take", self._take)

    def release(self, number: int) -> None:
        self.do("release", lambda: self._release(number))

    def cancel(self, number: int) -> None:
        self.do("cancel", lambda: self._cancel(number))

    # -- what an operator does --

    def quarantine(self, host: str) -> None:
        """Take a host out of service, or release it."""
        self.do("quarantine", lambda: self._quarantine(host))

    def end_quarantines(self) -> None:
        """Release all hosts, also those that launchers quarantined."""
        self.do("end_quarantines", self._end_quarantines)

    # -- jobs --

    def _quarantine(self, host: str) -> None:
        if not self.zk.maintenance.remove("host", host):
            self.zk.maintenance.put(Maintenance("host", host, Mode.QUARANTINE, "fan", "alice", self.world.now))

    def _end_quarantines(self) -> None:
        for kind, name in self.zk.maintenance.read_all():
            self.zk.maintenance.remove(kind, name)

    def _submit(self, labels: list[str], tenant: str | None) -> None:
        request = NodeRequest()
        request.state = states.REQUESTED
        request.node_types = labels
        request.requestor = "zuul"
        request.tenant_name = tenant
        self.zk.storeNodeRequest(request)
        self.waiting[request.key] = request

    def _take(self) -> None:
        """Take the nodes of all requests that are fulfilled."""
        for request_id in list(self.waiting):
            current = self.zk.getNodeRequest(request_id)
            if current is None:
                self.world.violation(f"request {request_id} vanished")
                del self.waiting[request_id]
            elif current.state == states.FAILED:
                del self.waiting[request_id]
                self.world.failed(current)
                self.zk.deleteNodeRequest(current)
            elif current.state == states.FULFILLED and self._take_nodes(current):
                del self.waiting[request_id]
                self.zk.deleteNodeRequest(current)

    def _take_nodes(self, request: NodeRequest) -> bool:
        nodes: list[Node] = []
        for node_id in request.nodes:
            node = self.zk.getNode(node_id)
            if node is None:
                self.world.violation(f"node {node_id} of fulfilled request {request.id} is gone")
                continue
            try:
                self.zk.lockNode(node, blocking=False)
            except ZKException:
                for locked in nodes:
                    self.zk.unlockNode(locked)
                return False
            self.zk.updateNode(node)
            if node.allocated_to != request.id or node.state != states.READY:
                self.world.violation(
                    f"node {node_id} of fulfilled request {request.id} is {node.state} for {node.allocated_to}"
                )
            nodes.append(node)
        for node in nodes:
            for other in self.held.values():
                if node.id in [held.id for held in other]:
                    self.world.violation(f"node {node.id} is held twice")
        self.held[request.key] = nodes
        for node in nodes:
            node.state = states.IN_USE
            self.zk.storeNode(node)
        return True

    def _release(self, number: int) -> None:
        if not self.held:
            return
        request_id = sorted(self.held)[number % len(self.held)]
        for node in self.held[request_id]:
            node.state = states.USED
            self.zk.storeNode(node)
        for node in self.held.pop(request_id):
            self.zk.unlockNode(node)

    def _cancel(self, number: int) -> None:
        if self.waiting:
            request_id = sorted(self.waiting)[number % len(self.waiting)]
            self.zk.deleteNodeRequest(self.waiting.pop(request_id))
