# SPDX-License-Identifier: Apache-2.0
"""What drivers see of ZooKeeper, under the names that the driver interface fixes (`ZooKeeper`).

Also the import path of state names and record classes for drivers: ``from nodepool.zk import zookeeper as zk``. Then
the lock of a node for a change that an operator requests, and maintenance records.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from kazoo.exceptions import BadVersionError, NoNodeError

from nodepool import log_names
from nodepool.exceptions import ZKConflict as ZKConflict
from nodepool.exceptions import ZKException as ZKException
from nodepool.exceptions import ZKLockException as ZKLockException
from nodepool.late_names import late_names
from nodepool.model.image import ImageBuild as ImageBuild
from nodepool.model.image import ImageUpload as ImageUpload
from nodepool.model.node import Node as Node
from nodepool.model.record import InvalidRecord
from nodepool.model.request import NodeRequest as NodeRequest
from nodepool.model.states import *  # noqa: F403 - drivers import states from here
from nodepool.model.status import MODES, Maintenance, MaintenanceRecords, PoolComponent, znode_name
from nodepool.zk import components, paths, transactions
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.nodes import NodepoolCache, NodeStore, RequestStore
from nodepool.zk.transactions import ZkLock, translated

if TYPE_CHECKING:
    from nodepool.zk.images import ImageStore

_late = late_names(__name__, {"ReleasedZooKeeper": "nodepool.compat.modules"})


class ZooKeeper:
    """Has all stores as attributes.

    Drivers written for 11.0.0 call it as ``ZooKeeper(client, enable_cache=True)``: they get
    `nodepool.compat.modules.ReleasedZooKeeper`, which takes these arguments.

    :param client: connected.
    :param cache: of a launcher; None reads ZooKeeper directly (command line).
    """

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """Also of 11.0.0; see the class."""
        wanted: Any = cls
        if cls is ZooKeeper and "cache" not in options and (len(arguments) < 2 or isinstance(arguments[1], bool)):
            wanted = _late("ReleasedZooKeeper")
        made: Self = object.__new__(wanted)
        return made

    def __init__(self, client: ZooKeeperClient, cache: NodepoolCache | None) -> None:
        self.client = client
        self.cache = cache
        self.nodes = NodeStore(client, cache)
        self.requests = RequestStore(client, cache, self.nodes)
        self.maintenance = MaintenanceStore(client)

    @cached_property
    def images(self) -> ImageStore:
        # Few commands need it, and all would wait for the import.
        from nodepool.zk.images import ImageStore

        return ImageStore(self.client)

    def installation_ids(self) -> tuple[str, ...]:
        """Ids that stand on things of this installation in clouds; those that are made get the first. Blocks.

        A launcher or builder makes the first one if there is none. For a command there is none then.
        """
        if self.cache is not None:
            return components.get_installation(self.client).ids
        found = components.read_installation(self.client)
        return () if found is None else found.ids

    # -- nodes --

    def getNodes(self) -> list[str]:
        """Ids of all nodes; blocks for a round trip."""
        return self.nodes.ids()

    def getNode(self, node: str, cached: bool = False, only_cached: bool = False) -> Node | None:
        """Read a node now; None if there is none. Blocks for a round trip.

        :param node: its id.
        :param cached: what the cache has is good enough: a copy of that, if it is there.
        :param only_cached: what the cache does not have is not there; does not block.
        """
        if (cached or only_cached) and self.cache is not None:
            found = self.cache.nodes.get(node)
            if found is not None or only_cached:
                return None if found is None else found.copy()
        return self.nodes.get(node)

    def nodeIterator(self, cached: bool = True, cached_ids: bool = False) -> Iterator[Node]:
        """All nodes, from the cache (do not change them: copy first) or, without a cache, from ZooKeeper.

        :param cached_ids: those that the cache knows; with ``cached`` false each of them is read.
        """
        if self.cache is None or not (cached or cached_ids):
            yield from self.nodes.iterate()
        elif cached:
            yield from self.cache.nodes.values()
        else:
            yield from filter(None, map(self.nodes.get, self.cache.nodes.ids()))

    def storeNode(self, node: Node) -> None:
        """Create a node that has no id yet, else overwrite it, fenced by its version.

        :raises ZKConflict: it was changed by another process or is deleted; nothing was written.
        """
        if node.id is None:
            self.nodes.create(node)
        else:
            self.nodes.save(node)

    def updateNode(self, node: Node) -> None:
        """Read a node again into the same object. Raises ZKConflict if it is deleted."""
        self.nodes.refresh(node)

    def deleteNode(self, node: Node) -> None:
        """Remove a node: with its lock in one write when we hold it, else whatever is there."""
        if node.lock is not None:
            self.nodes.remove(node)
        else:
            self.nodes.remove_raw(node.key)

    def deleteRawNode(self, node_id: str) -> None:
        """Delete a node's znode with everything below."""
        self.nodes.remove_raw(node_id)

    def replaceNode(self, old: Node, new: Node | None) -> None:
        """Remove a node that we hold locked and store ``new`` in its place, in one write; sets ``new.id``."""
        self.nodes.remove(old, new)

    def lockNode(
        self,
        node: Node,
        blocking: bool = True,
        timeout: float | None = None,
        ephemeral: bool = True,
        identifier: str | None = None,
    ) -> None:
        """Take a node's lock. Raises ZKLockException if another has it."""
        self.nodes.lock(node, blocking=blocking, timeout=timeout, ephemeral=ephemeral, identifier=identifier)

    def unlockNode(self, node: Node) -> None:
        """Release a node's lock. Raises ZKLockException if we have none."""
        self.nodes.unlock(node)

    def forceUnlockNode(self, node: Node) -> None:
        """Delete the contender that holds a node's lock, no matter who made it."""
        self.nodes.force_unlock(node)

    def getNodeLockContenders(self, node_id: str) -> list[str]:
        """Identifiers of those who hold and wait for a node's lock, the holder first."""
        return self.nodes.contenders(node_id)

    def isNodeLocked(self, node: Node) -> bool:
        """Does anybody hold or wait for the lock?"""
        return self.nodes.is_locked(node.key)

    def addNodeListener(self, listener: Callable[[str], None]) -> None:
        """Get the id of each node that changes ('' = any may have); in the cache thread, must not block."""
        if self.cache is None:
            raise ZKException("without a cache there are no listeners")
        self.cache.nodes.add_listener(listener)

    # -- requests --

    def getNodeRequests(self) -> list[str]:
        """Ids of all requests; blocks for a round trip."""
        return self.requests.ids()

    def getNodeRequest(self, request: str, cached: bool = False) -> NodeRequest | None:
        """Read a request now; None if there is none. Blocks for a round trip.

        :param request: its id.
        :param cached: what the cache has is good enough: a copy of that, if it is there.
        """
        found = self.cache.requests.get(request) if cached and self.cache is not None else None
        return self.requests.get(request) if found is None else found.copy()

    def nodeRequestIterator(self, cached: bool = True, cached_ids: bool = False) -> Iterator[NodeRequest]:
        """All requests, from the cache (do not change them) or, without a cache, from ZooKeeper.

        :param cached_ids: those that the cache knows; with ``cached`` false each of them is read.
        """
        if self.cache is None or not (cached or cached_ids):
            yield from self.requests.iterate()
        elif cached:
            yield from self.cache.requests.values()
        else:
            yield from filter(None, map(self.requests.get, self.cache.requests.ids()))

    def storeNodeRequest(self, request: NodeRequest, priority: str = "500") -> None:
        """Submit a new request (ephemeral) or overwrite one, fenced by its version. Raises ZKConflict."""
        if request.id is None:
            self.requests.create(request, priority)
        else:
            self.requests.save(request)

    def deleteNodeRequest(self, request: NodeRequest) -> None:
        """Delete a request that we submitted."""
        self.requests.delete(request)

    def lockNodeRequest(self, request: NodeRequest, blocking: bool = True, timeout: float | None = None) -> None:
        """Take a request's lock. Raises ZKLockException if another has it."""
        self.requests.lock(request, blocking=blocking, timeout=timeout)

    def unlockNodeRequest(self, request: NodeRequest) -> None:
        """Release a request's lock."""
        self.requests.unlock(request)

    # -- others --

    def getRegisteredPools(self) -> list[PoolComponent]:
        """All registered pools, from the cache when there is one."""
        if self.cache is not None:
            return self.cache.pools.values()
        return components.read_pools(self.client)

    def getMostRecentImageUpload(self, image: str, provider: str, *, cached: bool = True) -> ImageUpload | None:
        """The ready upload with the greatest state time, over all builds.

        :param cached: what the cache has is good enough: it does not block, and the upload must not be changed.
        """
        if cached and self.cache is not None and self.cache.images.complete:
            return self.cache.images.snapshot().image(image).current_upload(provider)
        return self.images.most_recent_upload(image, provider)

    def getImageUploadIds(self, provider: str) -> set[tuple[str, str]]:
        """Build id and upload id of all uploads to a provider, in every state; blocks for some round trips."""
        return self.images.upload_ids(provider)

    @contextlib.contextmanager
    def providerMutex(self, provider_name: str, timeout: float = 30.0) -> Iterator[ZkLock]:
        """Only one launcher at a time is inside, for one provider. Raises ZKLockException after ``timeout`` s.

        Inside is the lock, because it may be lost meanwhile: what is written under it must say so.
        """
        lock = transactions.acquire(self.client, paths.static_mutex(provider_name), timeout=timeout)
        try:
            yield lock
        finally:
            transactions.release(self.client, lock)


# The lock of a node, for a change that an operator requests.


def take(zk: ZooKeeper, node: Node, seconds: float | None, identifier: str) -> None:
    """Lock a node, and read it anew.

    :param seconds: wait at most so long; None = as long as it takes.
    :param identifier: who locks it, for others.
    :raises ZKLockException: another keeps the lock for so long.
    :raises ZKConflict: the node vanished.
    """
    zk.lockNode(node, blocking=True, timeout=seconds, identifier=identifier)
    try:
        zk.updateNode(node)
    except ZKConflict:
        give_back(zk, node)
        # Locking a node that was just deleted makes an empty one (reference/zookeeper 3).
        zk.nodes.remove_empty(node.key)
        raise


def give_back(zk: ZooKeeper, node: Node) -> None:
    """Unlock a node; one whose lock is lost is fine."""
    if node.lock is not None:
        zk.unlockNode(node)


# Maintenance records (reference/zookeeper).

log = logging.getLogger(log_names.ZOOKEEPER)


class MaintenanceStore:
    """Reads ZooKeeper directly. Every method blocks for round trips and raises ZKException."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    def read_all(self) -> MaintenanceRecords:
        """All records, also those that are over; bad ones are logged and skipped."""
        kinds = list(MODES)
        listed = transactions.read_children(self._client, [paths.maintenance(kind) for kind in kinds])
        znodes = [(kind, name) for kind, names in zip(kinds, listed, strict=True) for name in names or ()]
        answers = transactions.read_data(self._client, [paths.maintenance(*znode) for znode in znodes])
        found = {}
        for (kind, name), answer in zip(znodes, answers, strict=True):
            if answer is None:
                continue
            try:
                record = Maintenance.of_record(kind, name, paths.decode(answer[0]))
            except InvalidRecord as problem:
                log.error("Ignoring %s: %s", paths.maintenance(kind, name), problem)
                continue
            found[kind, record.name] = record
        return found

    def put(self, record: Maintenance) -> None:
        """Write a record, in place of one of the same subject."""
        data = paths.encode(record.to_dict())
        transactions.replace(self._client, _path(record), lambda known: known if known == data else data)

    def put_automatic(self, record: Maintenance, now: float) -> bool:
        """Write a record of a launcher, unless there is one of an operator that holds.

        Of launchers that do so at the same time one wins; what it says is as good.

        :param now: seconds since the epoch.
        :return: is a record of a launcher there now?
        """
        data = paths.encode(record.to_dict())

        def renewed(known: bytes | None) -> bytes:
            there = None if known is None else _there(record, known)
            holds = there is not None and not there.automatic and not there.is_over(now)
            return known if known is not None and holds else data

        return transactions.replace(self._client, _path(record), renewed) == data

    def remove(self, kind: str, name: str) -> bool:
        """Remove the record of a subject. False = there was none."""
        with translated():
            try:
                self._client.kazoo.delete(paths.maintenance(kind, znode_name(name)))
            except NoNodeError:
                return False
        return True

    def remove_if_over(self, record: Maintenance, now: float) -> bool:
        """Remove a record whose end has come, unless another has, or has written another one.

        :param now: seconds since the epoch.
        :return: was it removed here?
        """
        path = _path(record)
        with translated():
            try:
                data, stat = self._client.kazoo.get(path)
                there = _there(record, data)
                if there is None or not there.is_over(now):
                    return False
                self._client.kazoo.delete(path, version=stat.version)
            except (NoNodeError, BadVersionError):
                return False
        return True


def _path(record: Maintenance) -> str:
    return paths.maintenance(record.kind, znode_name(record.name))


def _there(record: Maintenance, data: bytes) -> Maintenance | None:
    """What is stored for the subject of a record; None = it is no record."""
    try:
        return Maintenance.of_record(record.kind, znode_name(record.name), paths.decode(data))
    except InvalidRecord:
        return None
