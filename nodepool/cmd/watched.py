# SPDX-License-Identifier: Apache-2.0
"""What a command that watches sees of ZooKeeper: caches, so that a change costs one read and no change costs none."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from nodepool.cmd.app import CommandError
from nodepool.cmd.session import CONNECT_SECONDS

if TYPE_CHECKING:
    from nodepool.zk.zookeeper import ZooKeeper

#: Shortest time between two looks, in seconds, however much changes.
_PAUSE: Final = 0.2


class Watched:
    """Nodes, requests and pools as they are now.

    Blocks until all is read. Raises CommandError: ZooKeeper does not answer in time.
    """

    def __init__(self, zk: ZooKeeper) -> None:
        from nodepool.zk.caches import NodepoolCache
        from nodepool.zk.zookeeper import ZooKeeper

        cache = NodepoolCache(zk.client)
        if not cache.wait_ready(CONNECT_SECONDS):
            raise CommandError("the nodes and requests could not be read from ZooKeeper in time")
        #: Reads from the caches.
        self.zk = ZooKeeper(zk.client, cache)
        self._changed = threading.Event()
        for records in (cache.nodes, cache.requests):
            records.add_listener(lambda *_: self._changed.set())

    def wait(self, seconds: float) -> None:
        """Block for at most so many seconds, less if a node or request changes."""
        threading.Event().wait(_PAUSE)
        self._changed.wait(max(0.0, seconds - _PAUSE))
        self._changed.clear()
