# SPDX-License-Identifier: Apache-2.0
"""`ReleasedZooKeeper`: the facade as drivers that are not part of Nodepool get it, with all methods of 11.0.0."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from nodepool.compat.released_images import ReleasedImages
from nodepool.exceptions import ZKConflict
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk.election import Election
from nodepool.zk.zookeeper import ZooKeeper


def facade_for_extra_driver(zk: ZooKeeper) -> ZooKeeper:
    """The same connection, caches and stores, with the methods of 11.0.0.

    One that is no plain facade, such as that of tests, is given as it is.
    """
    if type(zk) is not ZooKeeper:
        return zk
    made = object.__new__(ReleasedZooKeeper)
    vars(made).update(vars(zk))
    return made


class ReleasedZooKeeper(ReleasedImages):
    """What 11.0.0 had and the launcher does not use. In that release drivers changed what iterators gave: here too."""

    def nodeIterator(self, cached: bool = True, cached_ids: bool = False) -> Iterator[Node]:
        """All nodes; each is the caller's own."""
        return (node.copy() for node in super().nodeIterator(cached, cached_ids))

    def nodeRequestIterator(self, cached: bool = True, cached_ids: bool = False) -> Iterator[NodeRequest]:
        """All requests; each is the caller's own."""
        return (request.copy() for request in super().nodeRequestIterator(cached, cached_ids))

    # -- the connection --

    @property
    def kazoo_client(self) -> Any:
        """Kazoo's client. Raises ZKConnectionError: there is none yet."""
        return self.client.kazoo

    @property
    def connected(self) -> bool:
        """Is there a connection?"""
        return self.client.connected

    @property
    def suspended(self) -> bool:
        """Is the connection lost, but not the session, as far as known?"""
        return self.client.suspended

    @property
    def lost(self) -> bool:
        """Is there no session?"""
        return self.client.lost

    # -- nodes --

    def getProviderNodes(self, provider_name: str) -> list[Node]:
        """The nodes of a provider."""
        return [node for node in self.nodeIterator() if node.provider == provider_name]

    def countPoolNodes(self, provider_name: str, pool_name: str) -> int:
        """How many nodes a pool has, in every state."""
        return sum(node.pool == pool_name for node in self.getProviderNodes(provider_name))

    def getReadyNodesOfTypes(self, labels: Collection[str]) -> dict[str, list[Node]]:
        """Label -> ready nodes that are nobody's. Blocks."""
        found: dict[str, list[Node]] = {}
        for node in self.nodeIterator():
            wanted = [label for label in node.type if label in labels]
            if wanted and node.state == states.READY and not node.allocated_to and not self.isNodeLocked(node):
                for label in wanted:
                    found.setdefault(label, []).append(node)
        return found

    def deleteOldestUnusedNode(self, provider_name: str, pool_name: str) -> bool:
        """Have the ready node of a pool deleted that waits longest, and is nobody's. False = there is none. Blocks."""
        unused = [
            node
            for node in self.getProviderNodes(provider_name)
            if node.pool == pool_name and node.state == states.READY and not node.allocated_to
        ]
        for node in sorted(unused, key=lambda node: node.state_time or 0):
            node.state = states.USED
            try:
                self.nodes.save_unlocked(node)
            except ZKConflict:
                continue
            return True
        return False

    def removeProviderNodes(self, provider_name: str, provider_nodes: Iterable[Node]) -> None:
        """Remove the records of nodes; the cloud is not touched. Blocks."""
        for node in provider_nodes:
            self.deleteRawNode(node.key)

    # -- requests --

    def storeNodeRequest(self, request: NodeRequest, priority: str = "100") -> None:
        """Submit a new request, or overwrite one; the default of the priority is that of 11.0.0."""
        super().storeNodeRequest(request, priority)

    def updateNodeRequest(self, request: NodeRequest) -> None:
        """Read a request again into the same object. Raises ZKConflict if it is gone. Blocks."""
        fresh = self.requests.get(request.key)
        if fresh is None:
            raise ZKConflict(f"request {request.id} is gone")
        request.renew(fresh)

    def getNodeRequestLockIDs(self) -> list[str]:
        """Ids of requests that have a lock directory. Blocks."""
        return self.requests.lock_dir_ids()

    def deleteNodeRequestLock(self, lock_id: str) -> None:
        """Remove the lock directory of a request, with all in it. Blocks."""
        self.requests.remove_lock_dir_recursive(lock_id)

    def getStatsElection(self, identifier: str) -> Election:
        """The election of who sends the metrics of all launchers."""
        return Election(self.client, "stats", identifier)
