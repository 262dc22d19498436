# SPDX-License-Identifier: Apache-2.0
"""Which servers were made for which node, so that one that shows up late, after a lost answer, is not kept (D, L-4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from nodepool.driver.openstack.views import Server

#: How long a server may take to show up after its creation was not answered, in seconds.
LATE_SECONDS: Final = 3600.0


class _Claim:
    __slots__ = ("late_until", "owned", "pending")

    def __init__(self) -> None:
        #: Creations without an answer yet.
        self.pending = 0
        #: Servers whose creation was answered, or that were adopted.
        self.owned: set[str] = set()
        #: Until when a server may come that nobody expects.
        self.late_until = float("-inf")


class Claims:
    """Creations of one provider, by node id. Thread-safe, does not block; ``_lock`` guards all.

    :param provider: whose servers they are: others are none of our business.
    """

    def __init__(self, provider: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self._clock = clock
        self._lock = threading.Lock()
        self._claims: dict[str, _Claim] = {}
        #: server id -> node id
        self._nodes: dict[str, str] = {}

    def begin(self, node_id: str) -> None:
        """A creation is sent."""
        with self._lock:
            self._claims.setdefault(node_id, _Claim()).pending += 1

    def answered(self, node_id: str, server_id: str) -> None:
        """A creation was answered with this server."""
        with self._lock:
            claim = self._claims.setdefault(node_id, _Claim())
            claim.pending = max(0, claim.pending - 1)
            self._own(node_id, claim, server_id)

    def refused(self, node_id: str) -> None:
        """A creation was answered: no server was made."""
        with self._lock:
            claim = self._claims.setdefault(node_id, _Claim())
            claim.pending = max(0, claim.pending - 1)
            self._drop_if_over(node_id, claim)

    def lost(self, node_id: str) -> None:
        """There will be no answer to a creation, and no server was found."""
        with self._lock:
            claim = self._claims.setdefault(node_id, _Claim())
            claim.pending = max(0, claim.pending - 1)
            claim.late_until = self._clock() + LATE_SECONDS

    def found(self, node_id: str, servers: Iterable[Server]) -> str | None:
        """Of the servers of a node, one that nobody knew: the answer to a creation that got lost on its way."""
        with self._lock:
            claim = self._claims.setdefault(node_id, _Claim())
            for server in servers:
                if server.id not in claim.owned and server.metadata.get("nodepool_provider_name") == self.provider:
                    claim.pending = max(0, claim.pending - 1)
                    self._own(node_id, claim, server.id)
                    return server.id
        return None

    def deleted(self, server_id: str) -> None:
        """A server is gone."""
        with self._lock:
            node_id = self._nodes.pop(server_id, "")
            claim = self._claims.get(node_id)
            # Until the late one came, those that are known must be told from it.
            if claim is not None and claim.late_until < self._clock():
                claim.owned.discard(server_id)
                self._drop_if_over(node_id, claim)

    def strays(self, servers: Iterable[Server]) -> list[Server]:
        """Servers that a lost creation made after it was given up. Each is returned once."""
        found: list[Server] = []
        now = self._clock()
        with self._lock:
            for server in servers:
                claim = self._claims.get(server.metadata.get("nodepool_node_id", ""))
                if claim is None or claim.pending or claim.late_until < now or server.id in claim.owned:
                    continue
                if server.metadata.get("nodepool_provider_name") == self.provider:
                    self._own(server.metadata.get("nodepool_node_id", ""), claim, server.id)
                    found.append(server)
        return found

    def _own(self, node_id: str, claim: _Claim, server_id: str) -> None:
        claim.owned.add(server_id)
        self._nodes[server_id] = node_id

    def _drop_if_over(self, node_id: str, claim: _Claim) -> None:
        if not claim.pending and not claim.owned and claim.late_until < self._clock():
            del self._claims[node_id]
