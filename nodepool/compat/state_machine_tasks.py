# SPDX-License-Identifier: Apache-2.0
"""Names of `nodepool.driver.statemachine` of 11.0.0: tasks that the framework does itself now."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from nodepool.driver.framework.keyscan import MAX_SCANS, Scans
from nodepool.driver.statemachine.deletion import NodeDeletion
from nodepool.driver.statemachine.launch import NodeLaunch, StateMachineHandler
from nodepool.driver.statemachine.provider import StateMachineProvider
from nodepool.guard import settle
from nodepool.model.node import Node
from nodepool.zk.zookeeper import ZooKeeper


class StateMachineNodeLauncher(NodeLaunch):
    """The launch of a node that is locked and `building`."""

    def __init__(self, handler: StateMachineHandler, node: Node, provider_config: Any) -> None:
        super().__init__(handler.manager, handler, node)
        self._manager = handler.manager

    def launch(self) -> None:
        """Begin. Does not block."""
        self._manager.begin_launch(self)


class StateMachineNodeDeleter(NodeDeletion):
    """The deletion of a node that is locked."""

    def __init__(self, zk: ZooKeeper, provider_manager: StateMachineProvider, node: Node) -> None:
        super().__init__(provider_manager, node)

    @property
    def complete(self) -> bool:
        """Has it ended?"""
        return not self.is_alive()


class NodescanRequest:
    """A connection check of a node.

    :param host_key_checking: False: nothing is checked, and there are no keys.
    :param timeout: seconds.
    """

    def __init__(self, node: Node, host_key_checking: bool, timeout: float, log: Any) -> None:
        self.node = node
        self.host_key_checking = host_key_checking
        self.timeout = timeout
        self.log = log
        self.future: Future[tuple[str, ...]] = Future()

    @property
    def complete(self) -> bool:
        """Is there a result?"""
        return self.future.done()

    def fail(self, exception: Exception) -> None:
        """End it; `result` raises this."""
        if not self.future.done():
            self.future.set_exception(exception)

    def result(self) -> list[str]:
        """The host keys. Raises LaunchKeyscanException: the node does not answer. After the end; else it blocks."""
        return list(self.future.result())


class NodescanWorker:
    """Makes the checks. ``_lock`` guards ``_requests``; it is not held while a check runs."""

    def __init__(self) -> None:
        self._scans = Scans(ThreadPoolExecutor(MAX_SCANS, thread_name_prefix="NodescanWorker"))
        self._lock = threading.Lock()
        self._requests: set[NodescanRequest] = set()

    def start(self) -> None:
        """Nothing: the first request starts it."""

    def addRequest(self, request: NodescanRequest) -> None:
        """Begin a check. Does not block."""
        if not request.host_key_checking:
            request.future.set_result(())
            return
        with self._lock:
            self._requests.add(request)
        node = request.node
        scan = self._scans.scan(node.interface_ip or "", node.connection_port, request.timeout, node.connection_type)
        scan.add_done_callback(lambda done: self._ended(request, done))

    def _ended(self, request: NodescanRequest, scan: Future[tuple[str, ...]]) -> None:
        self.removeRequest(request)
        if not request.future.done():
            settle([request.future], scan.result)

    def removeRequest(self, request: NodescanRequest) -> None:
        """Its result is not waited for any more."""
        with self._lock:
            self._requests.discard(request)

    def length(self) -> int:
        """Checks that have not ended."""
        with self._lock:
            return len(self._requests)

    def stop(self) -> None:
        """Give all up. Does not block."""
        self._scans.stop()

    def join(self) -> None:
        """Wait for what runs, after `stop`."""
        self._scans.join()
