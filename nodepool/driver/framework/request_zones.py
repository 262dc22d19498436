# SPDX-License-Identifier: Apache-2.0
"""`RequestZones`: where the nodes of each request are made, for drivers that choose among several zones (N-7)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, TypeGuard

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest

#: Requests that are remembered; those that are served are the latest ones.
MOST: Final = 1000


class RequestZones:
    """The zone of a request is that of its first node; another one as long as no node is there. Thread-safe.

    ``_lock`` guards the tables.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._zones: dict[str, str] = {}
        #: How many nodes requests have in their zone; only those that have some.
        self._made: dict[str, int] = {}

    @staticmethod
    def concerns(request: NodeRequest | None) -> TypeGuard[NodeRequest]:
        """Does a request have several nodes?"""
        return request is not None and len(request.node_types) > 1

    def choose(self, request_id: str, zone: str) -> str:
        """The zone of a request; the given one if it has none yet."""
        with self._lock:
            found = self._zones.setdefault(request_id, zone)
            while len(self._zones) > MOST:
                oldest = next(iter(self._zones))
                del self._zones[oldest]
                self._made.pop(oldest, None)
            return found

    def made(self, request_id: str, zone: str) -> None:
        """A node of a request is in a zone: that of the others, too."""
        with self._lock:
            if request_id not in self._made:
                self._zones[request_id] = zone
            if self._zones[request_id] == zone:
                self._made[request_id] = self._made.get(request_id, 0) + 1

    def lost(self, request_id: str, zone: str) -> None:
        """A node of which `made` told came to nothing. With the last one the zone is left."""
        with self._lock:
            if self._zones.get(request_id) != zone or request_id not in self._made:
                return
            self._made[request_id] -= 1
            if not self._made[request_id]:
                del self._made[request_id], self._zones[request_id]

    def no_room(self, request_id: str, zone: str) -> None:
        """A zone has no capacity for a node of a request. It is left, unless a node is there already."""
        with self._lock:
            if self._zones.get(request_id) == zone and request_id not in self._made:
                del self._zones[request_id]
