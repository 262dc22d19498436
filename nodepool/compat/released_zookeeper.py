# SPDX-License-Identifier: Apache-2.0
"""`ReleasedZooKeeper`: the facade as drivers that are not part of Nodepool get it, with all methods of 11.0.0."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from nodepool.compat.released_images import ReleasedImages
from nodepool.exceptions import ZKConflict, ZKConnectionError
from nodepool.model import states
from nodepool.model.node import Node
from nodepool.model.request import NodeRequest
from nodepool.zk import paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.election import Election
from nodepool.zk.locks import ZkLock
from nodepool.zk.nodepool_cache import NodepoolCache
from nodepool.zk.transactions import SessionLost
from nodepool.zk.zookeeper import ZooKeeper

#: A facade that a driver makes waits so long for its caches.
CACHE_SECONDS: Final = 60.0


def facade_for_extra_driver(zk: ZooKeeper) -> ZooKeeper:
    """The same connection, caches and stores, with the methods of 11.0.0.

    One that is no plain facade, such as that of tests, is given as it is.
    """
    if type(zk) is not ZooKeeper:
        return zk
    made = object.__new__(ReleasedZooKeeper)
    vars(made).update(vars(zk))
    return made


@dataclass(frozen=True)
class NodeRequestLockStats:
    """The lock directory of a request.

    :param stat: Kazoo's, with ``mtime`` in milliseconds since the epoch.
    """

    lock_id: str
    stat: Any


class ReleasedZooKeeper(ReleasedImages):
    """What 11.0.0 had and the launcher does not use. In that release drivers changed what iterators gave: here too.

    :param client: connected.
    :param enable_cache: follow nodes, requests, pools and images; the constructor blocks until all of them are read.
    """

    IMAGE_ROOT: ClassVar[str] = paths.IMAGES
    NODE_ROOT: ClassVar[str] = paths.NODES
    REQUEST_ROOT: ClassVar[str] = paths.REQUESTS
    REQUEST_LOCK_ROOT: ClassVar[str] = paths.REQUEST_LOCKS
    ELECTION_ROOT: ClassVar[str] = paths.ELECTIONS

    #: Told of each node that changes, since `setNodeStatsEvent`.
    _stats_listener: Callable[[str], None] | None = None

    def __init__(self, client: ZooKeeperClient, enable_cache: bool = True) -> None:
        cache = NodepoolCache(client) if enable_cache else None
        super().__init__(client, cache)
        if cache is not None and not cache.wait_ready(CACHE_SECONDS):
            raise ZKConnectionError(f"ZooKeeper was not read within {CACHE_SECONDS:g} s")

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

    def disconnect(self) -> None:
        """End the connection, for all who use it: the launcher, too."""
        self.client.disconnect()

    def logConnectionRetryEvent(self) -> None:
        """Log that a connection is tried again, now and then."""
        self.client.logConnectionRetryEvent()

    def resetHosts(self, hosts: str) -> None:
        """Use other servers from the next connection attempt on. Raises ZKException: another chroot."""
        self.client.reset_hosts(hosts)

    # -- metrics --

    def reportStats(self, statsd: Any, root_key: str) -> None:
        """Send what waits inside, in one packet.

        :param statsd: client of the package ``statsd``.
        :param root_key: e.g. ``nodepool.launcher.<hostname>``.
        """
        cache = self.cache
        reading = {
            "node": cache.nodes.pending_reads if cache else 0,
            "request": cache.requests.pending_reads if cache else 0,
            "image": cache.images.pending_reads if cache else 0,
        }
        with statsd.pipeline() as pipeline:
            pipeline.gauge(f"{root_key}.zk.client.connection_queue", self.client.queued_calls)
            for kind, count in reading.items():
                pipeline.gauge(f"{root_key}.zk.{kind}_cache.event_queue", count)
                pipeline.gauge(f"{root_key}.zk.{kind}_cache.playback_queue", 0)

    def setNodeStatsEvent(self, event: threading.Event | None) -> None:
        """Have an event set whenever a node changes, instead of the one before; None = of no more. Needs a cache."""
        if self._stats_listener is not None and self.cache is not None:
            self.cache.nodes.remove_listener(self._stats_listener)
        self._stats_listener = None
        if event is not None:
            self._stats_listener = lambda _: event.set()
            self.addNodeListener(self._stats_listener)

    # -- nodes --

    def watchNode(self, node: Node, callback: Callable[[Node, bool], bool | None]) -> None:
        """Have a node read again whenever it changes.

        :param callback: called now and after each change, with the same node and whether it is gone, which is the last
            call. It returns False to be called no more.
        """

        def changed(data: bytes | None, *_: Any) -> bool:
            fresh = None if data is None else self.nodes.get(node.key)
            if fresh is not None:
                node.renew(fresh)
            return callback(node, data is None) is not False and data is not None

        self.client.kazoo.DataWatch(paths.node(node.key), changed)

    def storeNode(self, node: Node) -> None:
        """As the facade of the launcher does, but not without the lock that was taken.

        :raises SessionLost: the session that the node was locked in is over. It may have been written nevertheless.
        """
        self._check_session(node)
        try:
            super().storeNode(node)
        except ZKConflict:
            # Somebody else may have it by now, and that is why.
            self._check_session(node)
            raise
        self._check_session(node)

    def _check_session(self, node: Node) -> None:
        lock = node.lock
        if isinstance(lock, ZkLock) and lock.ephemeral and lock.epoch != self.client.session_epoch:
            raise SessionLost(f"node {node.id} was locked in a session that is lost")

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

    def getNodeLockContenders(self, node: Node | str) -> list[str]:
        """Identifiers of those who hold and wait for a node's lock, the holder first. Blocks.

        :param node: in 11.0.0 the node itself; else its id.
        """
        return super().getNodeLockContenders(node if isinstance(node, str) else node.key)

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

    def getNodeRequestLockStats(self, lock_id: str) -> NodeRequestLockStats | None:
        """The lock directory of a request; None = there is none. Blocks."""
        kazoo = self.client.kazoo
        stat = kazoo.retry(kazoo.exists, paths.request_lock(lock_id))
        return None if stat is None else NodeRequestLockStats(lock_id, stat)

    def nodeRequestLockStatsIterator(self) -> Iterator[NodeRequestLockStats]:
        """The lock directories of all requests. Blocks."""
        return filter(None, map(self.getNodeRequestLockStats, self.getNodeRequestLockIDs()))

    def deleteNodeRequestLock(self, lock_id: str) -> None:
        """Remove the lock directory of a request, with all in it. Blocks."""
        self.requests.remove_lock_dir_recursive(lock_id)

    def getStatsElection(self, identifier: str) -> Election:
        """The election of who sends the metrics of all launchers."""
        return Election(self.client, "stats", identifier)
