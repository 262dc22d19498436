# SPDX-License-Identifier: Apache-2.0
"""Making room for a request that waits at quota: an unused ready node goes (behaviour.md Q-8, Q-9)."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Final

from nodepool.exceptions import ZKConflict
from nodepool.model import states

if TYPE_CHECKING:
    from nodepool.launcher.pool_worker import PoolWorker

#: Seconds after a node of the pool went to `deleting` in which no other is sacrificed.
RELIEF_SECONDS: Final = 300.0


class Relief:
    """Owned by the pool worker's thread."""

    def __init__(self, worker: PoolWorker) -> None:
        self._worker = worker
        self._last = -math.inf

    def relieve(self) -> None:
        """Mark the oldest free ready node of the pool `deleting`, unless one went lately."""
        worker = self._worker
        if time.monotonic() - self._last < RELIEF_SECONDS:
            return
        oldest = worker.ready_nodes.oldest()
        if oldest is None or self._went_lately():
            return
        node = oldest.copy()
        node.state = states.DELETING
        worker.ready_nodes.discard(node.id or "")
        try:
            worker.getZK().nodes.save_unlocked(node)
        except ZKConflict as conflict:
            worker.log.debug("Ready node %s was not given up: %s", node.id, conflict)
            return
        self._last = time.monotonic()
        worker.log.info("Giving up unused ready node %s: a request waits for room", node.id)

    def _went_lately(self) -> bool:
        worker = self._worker
        now = time.time()
        return any(
            node.state == states.DELETING
            and node.provider == worker.provider_name
            and node.pool == worker.pool_name
            and now - (node.state_time or 0) < RELIEF_SECONDS
            for node in worker.getZK().nodeIterator()
        )
