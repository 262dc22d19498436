# SPDX-License-Identifier: Apache-2.0
"""Which servers were made for which node, so that one that shows up late, after a lost answer, is not kept (D, L-4)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.openstack.views import Server

#: How long a server may take to show up after its creation was not answered, in seconds.
LATE_SECONDS: Final = 3600.0
#: With more claims those that began so long ago are forgotten: other launchers delete servers, and do not tell.
MANY: Final = 1000
OLD_SECONDS: Final = 2 * LATE_SECONDS


class _Claim:
    __slots__ = ("begun_at", "late_until", "owned", "pending")

    def __init__(self) -> None:
        #: When the latest creation was sent.
        self.begun_at = float("-inf")
        #: Creations without an answer yet: 0 or 1.
        self.pending = 0
        #: Servers whose creation was answered, or that were adopted.
        self.owned: set[str] = set()
        #: Until when a server may come that nobody expects.
        self.late_until = float("-inf")


class Claims:
    """Creations of one provider, by node id. Thread-safe, does not block; ``_lock`` guards all.

    :param provider: whose servers they are: others are none of our business.
    """

    def __init__(self, provider: str, clock: Callable[[], float] = monotonic) -> None:
        self.provider = provider
        self._clock = clock
        self._lock = threading.Lock()
        self._claims: dict[str, _Claim] = {}
        #: server id -> node id
        self._nodes: dict[str, str] = {}
        self._many = MANY

    def begin(self, node_id: str) -> None:
        """A creation is sent. One of the same node that still has no answer was given up: it may make a server late."""
        now = self._clock()
        with self._lock:
            self._forget_old(now)
            claim = self._claims.setdefault(node_id, _Claim())
            if claim.pending:
                claim.late_until = now + LATE_SECONDS
            claim.pending = 1
            claim.begun_at = now

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

    def _forget_old(self, now: float) -> None:
        if len(self._claims) <= self._many:
            return
        self._claims = {node_id: claim for node_id, claim in self._claims.items() if claim.begun_at > now - OLD_SECONDS}
        self._nodes = {server_id: node_id for server_id, node_id in self._nodes.items() if node_id in self._claims}
        self._many = max(MANY, 2 * len(self._claims))

    def _own(self, node_id: str, claim: _Claim, server_id: str) -> None:
        claim.owned.add(server_id)
        self._nodes[server_id] = node_id

    def _drop_if_over(self, node_id: str, claim: _Claim) -> None:
        if not claim.pending and not claim.owned and claim.late_until < self._clock():
            del self._claims[node_id]
