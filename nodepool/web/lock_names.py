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
from nodepool.guard import OnError
from nodepool.zk.locks import LockOwners

if TYPE_CHECKING:
    from nodepool.zk.client import ZooKeeperClient

log = logging.getLogger("nodepool.web.lock_names")

#: An answer is given again for so long, however many viewers there are.
KNOWN_SECONDS: Final = 1.0
#: The processes that are registered are read again after so long.
PROCESSES_SECONDS: Final = 10.0
#: An answer is waited for so long.
WAIT_SECONDS: Final = 0.3
#: Answers that are kept.
MOST_KNOWN: Final = 200


class LockNames:
    """Any thread. At most one question to ZooKeeper is under way at a time.

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

        Blocks for `WAIT_SECONDS` at most: parts of all pages wait for each other. Without a connection, without an
        answer in time, and while another thread asks, the last answer holds.
        """
        name, at = self._known.get(node_id, (None, -math.inf))
        if self._clock() < at + KNOWN_SECONDS or not self._client.connected or not self._asking.acquire(blocking=False):
            return name
        thread = threading.Thread(target=self._ask, args=(node_id,), name="LockNames", daemon=True)
        with OnError(lambda _error: self._asking.release()):
            thread.start()
        thread.join(WAIT_SECONDS)
        return self._known.get(node_id, (name, at))[0]

    def _ask(self, node_id: str) -> None:
        """Of a thread of its own: nobody can end the wait for ZooKeeper."""
        try:
            self._learn(node_id)
        except ZKException as error:
            # It is only shown: the page has all the rest.
            log.debug("Who has the lock of node %s is not known: %s", node_id, error)
        finally:
            self._asking.release()

    def _learn(self, node_id: str) -> None:
        now = self._clock()
        if self._owners is None or now >= self._owners_at + PROCESSES_SECONDS:
            self._owners, self._owners_at = self._make_owners(self._client), now
        name = self._owners.of_node(node_id)
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[node_id] = (name, now)
