# SPDX-License-Identifier: Apache-2.0
"""`LockNames`: who has the lock of a node, for pages and answers about one node."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from nodepool.clock import monotonic
from nodepool.exceptions import ZKException
from nodepool.zk.lock_owners import LockOwners

if TYPE_CHECKING:
    from nodepool.zk.client import ZooKeeperClient

log = logging.getLogger("nodepool.web.lock_names")

#: An answer is given again for so long, however many viewers there are.
KNOWN_SECONDS: Final = 1.0
#: The processes that are registered are read again after so long.
PROCESSES_SECONDS: Final = 10.0
#: Answers that are kept.
MOST_KNOWN: Final = 200


class LockNames:
    """Any thread. At most one asks ZooKeeper at a time, so that a slow ZooKeeper takes one thread of the pages only.

    :param owners: makes what knows the processes; raises ZKException.
    :param clock: monotonic seconds.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        owners: Callable[[ZooKeeperClient], LockOwners] = LockOwners,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._client = client
        self._make_owners = owners
        self._clock = clock
        self._asking = threading.Lock()
        self._owners: LockOwners | None = None
        self._owners_at = -math.inf
        #: Id of a node -> who has its lock, and when that was asked.
        self._known: dict[str, tuple[str | None, float]] = {}

    def of_node(self, node_id: str) -> str | None:
        """Who has the lock of a node: a launcher, Zuul's executor, a person; None = nobody, or that is not known.

        Blocks for some round trips. Without a connection, and while another thread asks, the last answer holds.
        """
        name, at = self._known.get(node_id, (None, -math.inf))
        if self._clock() < at + KNOWN_SECONDS or not self._client.connected or not self._asking.acquire(blocking=False):
            return name
        try:
            name = self._ask(node_id)
        except ZKException as error:
            # It is only shown: the page has all the rest.
            log.debug("Who has the lock of node %s is not known: %s", node_id, error)
            return name
        finally:
            self._asking.release()
        return name

    def _ask(self, node_id: str) -> str | None:
        now = self._clock()
        if self._owners is None or now >= self._owners_at + PROCESSES_SECONDS:
            self._owners, self._owners_at = self._make_owners(self._client), now
        name = self._owners.of_node(node_id)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[node_id] = (name, now)
        return name
