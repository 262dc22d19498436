# SPDX-License-Identifier: Apache-2.0
"""Reads nodes from ZooKeeper (reference/zookeeper 5)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kazoo.exceptions import KazooException, NoNodeError

from nodepool import log_names
from nodepool.exceptions import ZKConflict
from nodepool.model.node import Node
from nodepool.model.record import InvalidRecord
from nodepool.zk import codec, multi_read, paths
from nodepool.zk.client import ZooKeeperClient
from nodepool.zk.transactions import translate


class NodeReader:
    """All methods block for one round trip unless they say otherwise. They raise `ZKConnectionError`."""

    log = logging.getLogger(log_names.ZOOKEEPER)

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    def ids(self) -> list[str]:
        """Ids of all nodes, in ZooKeeper's order."""
        return [name for name in multi_read.children(self._client, paths.NODES) if name != paths.LOCK]

    def get(self, node_id: str) -> Node | None:
        """Read one node; None if there is none, or its data is no node (logged)."""
        found = self._read(node_id)
        return None if found is None else self._decode(node_id, *found)

    def _read(self, node_id: str) -> tuple[bytes, Any] | None:
        if not paths.is_name(node_id):
            return None
        try:
            found: tuple[bytes, Any] = self._client.kazoo.retry(self._client.kazoo.get, paths.node(node_id))
            return found
        except NoNodeError:
            return None
        except KazooException as error:
            raise translate(error) from None

    def existing(self, node_ids: Iterable[str]) -> set[str]:
        """Which of these znodes are there, whatever their data? Many in a packet."""
        names = [node_id for node_id in node_ids if paths.is_name(node_id)]
        answers = multi_read.read_data(self._client, map(paths.node, names))
        return {name for name, found in zip(names, answers, strict=True) if found is not None}

    def refresh(self, node: Node) -> None:
        """Read a node again into the same object. Raises ZKConflict if it is gone or unreadable."""
        fresh = self.get(node.key)
        if fresh is None:
            raise ZKConflict(f"node {node.id} is gone")
        node.renew(fresh)

    def iterate(self, wanted: Callable[[str, bytes, Any], bool] | None = None) -> Iterator[Node]:
        """Read all nodes, many in a packet; bad ones are logged and skipped.

        :param wanted: is a node wanted, by its id, data and stat? To decode thousands takes longer than to read them.
        """
        return self.read_some(self.ids(), wanted)

    def read_some(self, ids: Sequence[str], wanted: Callable[[str, bytes, Any], bool] | None = None) -> Iterator[Node]:
        """Read some nodes, as `iterate`; those that are gone are skipped.

        :param ids: names of znodes (`paths.is_name`).
        """
        for node_id, found in zip(ids, multi_read.read_data(self._client, map(paths.node, ids)), strict=True):
            if found is None or (wanted is not None and not wanted(node_id, *found)):
                continue
            node = self._decode(node_id, *found)
            if node is not None:
                yield node

    def _decode(self, node_id: str, data: bytes, stat: Any) -> Node | None:
        try:
            node = Node.from_dict(codec.decode(data), node_id)
        except InvalidRecord as problem:
            self.log.error("Ignoring %s: %s", paths.node(node_id), problem)
            return None
        node.version = stat.version
        node.mzxid = stat.mzxid
        return node
