# SPDX-License-Identifier: Apache-2.0
"""Serves the backing requests of a metastatic provider in a `MemoryZooKeeper`, as other providers would."""

from __future__ import annotations

import itertools
import threading

from nodepool.exceptions import ZKConflict
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.testing.memory_zk import MemoryZooKeeper


class BackingPool:
    """A thread that fulfils requests of ``NodePool:metastatic:*`` and removes nodes that are released.

    The knobs may be turned by the test; `look` after that.

    :ivar served: ids of the requests that were fulfilled.
    """

    def __init__(self, zk: MemoryZooKeeper) -> None:
        self.zk = zk
        self.served: list[str] = []
        #: Leave requests as they are.
        self.hold = False
        #: Fail requests: all, or so many.
        self.fail = False
        self.fail_next = 0
        #: Somebody else locks so many new nodes; they are kept in ``locked``.
        self.lock_nodes = 0
        self.locked: list[Node] = []
        #: So many nodes vanish before anybody knows of them.
        self.lose_nodes = 0
        self._numbers = itertools.count(1)
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backing-pool", daemon=True)
        zk.cache.requests.add_listener(self._note)
        zk.cache.nodes.add_listener(self._note)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._changed.set()
        self._thread.join()

    def look(self) -> None:
        """Look at all requests again."""
        self._changed.set()

    def _note(self, _: str) -> None:
        self._changed.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._changed.wait()
            self._changed.clear()
            try:
                for request in list(self.zk.nodeRequestIterator()):
                    if (request.requestor or "").startswith("NodePool:metastatic:"):
                        self._serve(request)
                for node in list(self.zk.nodeIterator()):
                    if node.provider == "backing" and node.state == states.USED and not self.zk.isNodeLocked(node):
                        self.zk.deleteRawNode(node.key)
            except ZKConflict:
                self._changed.set()

    def _serve(self, request: NodeRequest) -> None:
        if self.hold or request.state != states.REQUESTED:
            return
        if self.fail or self.fail_next > 0:
            self.fail_next -= 1
            request.state = states.FAILED
            self.zk.storeNodeRequest(request)
            return
        number = next(self._numbers)
        node = Node(request.node_types[0])
        node.state = states.READY
        node.provider, node.pool, node.cloud, node.az, node.region = "backing", "main", "a cloud", "az1", "north"
        node.allocated_to, node.requestor = request.id, request.requestor
        node.external_id = f"machine-{number}"
        node.hostname = f"host{number}"
        node.interface_ip = node.public_ipv4 = f"127.3.0.{number}"
        node.connection_type, node.python_path, node.username = "ssh", "/usr/bin/python3", "debian"
        node.host_keys = ["ssh-ed25519 AAAA"]
        node.attributes = {"backing": "yes", "both": "backing"}
        self.zk.storeNode(node)
        if self.lock_nodes > 0:
            self.lock_nodes -= 1
            self.zk.lockNode(node)
            self.locked.append(node)
        if self.lose_nodes > 0:
            self.lose_nodes -= 1
            self.zk.deleteRawNode(node.key)
        request.nodes = [node.key]
        request.state = states.FULFILLED
        self.zk.storeNodeRequest(request)
        self.served.append(request.key)
