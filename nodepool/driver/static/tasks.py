# SPDX-License-Identifier: Apache-2.0
"""The way of a released node back to `ready` (rule S-8)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from nodepool.driver.static.registration import StaticRegistry
from nodepool.guard import Guard
from nodepool.plan import static_hosts

if TYPE_CHECKING:
    from nodepool.model.node import Node
    from nodepool.plan.static_hosts import HostFacts, HostId

log = logging.getLogger("nodepool.driver.static")


class StaticNodeCleanup:
    """One released node. The node keeps its slot until its successor is stored in the same write.

    :param node: locked by us.
    :param slot_empty: notified when the slot has no node now, and why if its host failed the check.
    """

    def __init__(
        self, registry: StaticRegistry, node: Node, slot_empty: Callable[[HostId, Exception | None], None]
    ) -> None:
        self._registry = registry
        self._node = node
        self._slot_empty = slot_empty
        self._ended = threading.Event()

    def is_alive(self) -> bool:
        """Is it still running? Does not block."""
        return not self._ended.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the node is gone or unlocked, at most ``timeout`` seconds."""
        self._ended.wait(timeout)

    def finish(self) -> None:
        """End, in any case with the node gone or unlocked."""
        try:
            if self._node.lock is not None:
                self._registry.unlock(self._node)
        finally:
            self._ended.set()

    def checked(self, check: Future[HostFacts]) -> None:
        """The host's check ended: go on. Called in a thread of the pool; blocks for a round trip."""
        try:
            # A callback of a future: nobody else would hear of it. The launcher tries again.
            with Guard(log, "Node %s could not be recycled", self._node.id):
                if check.cancelled():
                    # The provider is stopped. The node stays `deleting`; the successor does this again.
                    return
                error = check.exception()
                facts = check.result() if error is None else None
                if not self._registry.recycle(self._node, facts):
                    host = static_hosts.slot_of(self._node).host
                    self._slot_empty(host, error if isinstance(error, Exception) else None)
        finally:
            self.finish()

    def remove(self) -> None:
        """No check: the slot is not configured any more (S-7), or the host quarantined (S-17). One round trip."""
        self._registry.recycle(self._node, None)
