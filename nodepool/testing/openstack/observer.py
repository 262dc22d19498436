# SPDX-License-Identifier: Apache-2.0
"""Watches the servers for what tests assert: how many lived at once, and whether a node ever had two."""

from __future__ import annotations

from collections import Counter

from nodepool.testing.openstack.servers import Server

NODE_KEY, PROVIDER_KEY = "nodepool_node_id", "nodepool_provider_name"


class Observer:
    """Peaks since the start or the last `reset`. A server lives from the accepted create to the end of its deletion."""

    def __init__(self) -> None:
        self.peak_servers = 0
        #: Most servers at once by the provider in their metadata.
        self.peak_by_provider: Counter[str] = Counter()
        #: Node ids that had two servers at once.
        self.double_nodes: list[str] = []
        self._live: Counter[str] = Counter()
        self._nodes: Counter[tuple[str, str]] = Counter()

    def created(self, server: Server, live: int) -> None:
        """A server was accepted; ``live`` counts it."""
        self.peak_servers = max(self.peak_servers, live)
        provider, node = _labels(server)
        self._live[provider] += 1
        self.peak_by_provider[provider] = max(self.peak_by_provider[provider], self._live[provider])
        if node:
            self._nodes[provider, node] += 1
            if self._nodes[provider, node] > 1:
                self.double_nodes.append(node)

    def removed(self, server: Server) -> None:
        """A server is gone."""
        provider, node = _labels(server)
        self._live[provider] -= 1
        if node:
            self._nodes[provider, node] -= 1
            if not self._nodes[provider, node]:
                del self._nodes[provider, node]

    def reset(self, live: int) -> None:
        """Begins anew from what lives now."""
        self.peak_servers = live
        self.peak_by_provider = Counter(+self._live)
        self.double_nodes.clear()


def _labels(server: Server) -> tuple[str, str]:
    return server.metadata.get(PROVIDER_KEY, ""), server.metadata.get(NODE_KEY, "")
