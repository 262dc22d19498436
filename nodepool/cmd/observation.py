# SPDX-License-Identifier: Apache-2.0
"""Reads what `nodepool.plan.explain` needs to know of a subject: directly, and no more than that."""

from __future__ import annotations

import heapq
import json
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import wall_time
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.model.component import PoolComponent
    from nodepool.model.node import Node
    from nodepool.model.request import NodeRequest
    from nodepool.plan.observed import Observed
    from nodepool.zk.zookeeper import ZooKeeper

#: Nodes in use that are looked at, those first that have not changed for the longest time.
OLDEST: Final = 10


def observe(zk: ZooKeeper, name: str | None) -> Observed:
    """What ZooKeeper says of a subject, and of what it depends on. Blocks for some round trips. Raises ZKException.

    :param zk: with a cache all nodes and requests come from there.
    :param name: of anything; None = of everything.
    """
    from nodepool.model.image import NO_IMAGES
    from nodepool.plan.observed import Observed
    from nodepool.zk import components, status
    from nodepool.zk.images import builder_status, read_images
    from nodepool.zk.maintenance_store import MaintenanceStore

    registered = components.read_pools(zk.client)
    requests = {request.key: request for request in zk.nodeRequestIterator()}
    nodes = _nodes(zk, name, requests, registered)
    launchers = status.read_launchers(zk.client)
    images = NO_IMAGES if name in requests or name in nodes else read_images(zk.client)
    return Observed(
        now=wall_time(),
        requests=requests,
        nodes=nodes,
        registered=registered,
        statuses=status.read_pools(zk.client),
        maintenance=[*MaintenanceStore(zk.client).read_all().values(), *images.pauses()],
        events=[event for launcher in launchers for event in launcher.events],
        launchers=launchers,
        images=images,
        builders=frozenset(components.read_hosts(zk.client, "builder")),
        builder_providers=builder_status(zk.client).providers,
        locked=frozenset(zk.nodes.locked_ids([name]) if name is not None and name in nodes else ()),
    )


def _nodes(
    zk: ZooKeeper, name: str | None, requests: Mapping[str, NodeRequest], registered: Iterable[PoolComponent]
) -> dict[str, Node]:
    """The nodes that have to do with a subject. Others may be among them; those are of no account."""
    if name is None:
        return {node.key: node for node in zk.nodeIterator()}
    request = requests.get(name)
    if name.isdecimal():
        node = zk.getNode(name)
        if node is not None:
            return {node.key: node}
    if request is None:
        # A provider, a pool of one, or a label stands in the records of its nodes.
        mark = _mark(name.partition("/")[0])
        found = zk.nodes.iterate(lambda _node_id, data, _stat: mark in data)
        return {node.key: node for node in found}
    able = [pool for pool in registered if set(request.node_types) <= set(pool.supported_labels)]
    kept = {node_id for other in requests.values() if other.state == states.FULFILLED for node_id in other.nodes}
    look = _RoomLook(request, {pool.provider_name for pool in able}, kept)
    nodes = {node.key: node for node in zk.nodes.iterate(look.wants)}
    return nodes | {node.key: node for node in zk.nodes.read_some(look.oldest)}


class _RoomLook:
    """Chooses the nodes of a request, and of others those that say why there is no room for it.

    :param providers: that could serve it.
    :param kept: ids of nodes of fulfilled requests.
    """

    def __init__(self, request: NodeRequest, providers: Iterable[str], kept: Container[str] = ()) -> None:
        self._request = _mark(request.key)
        self._providers = [_mark(provider) for provider in providers]
        self._kept = kept
        self._in_use: list[tuple[int, str, bytes]] = []

    def wants(self, node_id: str, data: bytes, stat: Any) -> bool:
        """Is it one? Decided without decoding it: a mark may stand elsewhere in a record, too."""
        if self._request in data:
            return True
        if _IN_USE in data:
            self._in_use.append((stat.mzxid, node_id, data))
            return False
        return (node_id in self._kept or _HOLD in data or _DELETING in data) and self._is_of_provider(data)

    def _is_of_provider(self, data: bytes) -> bool:
        return any(provider in data for provider in self._providers)

    @property
    def oldest(self) -> list[str]:
        """Ids of nodes that have been in use for the longest time."""
        found: list[str] = []
        left = self._in_use.copy()
        heapq.heapify(left)
        while left and len(found) < OLDEST:
            _, node_id, data = heapq.heappop(left)
            if self._is_of_provider(data):
                found.append(node_id)
        return found


def _mark(text: str) -> bytes:
    """A text as it stands in a record."""
    return json.dumps(text).encode()


_IN_USE, _HOLD, _DELETING = map(_mark, (states.IN_USE, states.HOLD, states.DELETING))
