# SPDX-License-Identifier: Apache-2.0
"""Watches the servers for what tests assert: how many lived at once, and whether a node ever had two."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from nodepool.testing.openstack.servers import Server

NODE_KEY, PROVIDER_KEY = "nodepool_node_id", "nodepool_provider_name"


class Use(NamedTuple):
    """What lives in the cloud; ``ram`` in MiB."""

    servers: int
    cores: int
    ram: int


class Observer:
    """Peaks since the start or the last `reset`. A server lives from the accepted create to the end of its deletion."""

    def __init__(self) -> None:
        self.peak_servers = 0
        self.peak_cores = 0
        self.peak_ram = 0
        #: Most servers at once by the provider in their metadata.
        self.peak_by_provider: Counter[str] = Counter()
        #: The same for cores, and for RAM in MiB.
        self.peak_cores_by_provider: Counter[str] = Counter()
        self.peak_ram_by_provider: Counter[str] = Counter()
        #: Node ids that had two servers at once.
        self.double_nodes: list[str] = []
        self._live: Counter[str] = Counter()
        self._cores: Counter[str] = Counter()
        self._ram: Counter[str] = Counter()
        self._nodes: Counter[tuple[str, str]] = Counter()

    def created(self, server: Server, use: Use) -> None:
        """A server was accepted; ``use`` counts it."""
        self.peak_servers = max(self.peak_servers, use.servers)
        self.peak_cores = max(self.peak_cores, use.cores)
        self.peak_ram = max(self.peak_ram, use.ram)
        provider, node = _labels(server)
        self._count(server, provider, 1)
        self.peak_by_provider |= self._live
        self.peak_cores_by_provider |= self._cores
        self.peak_ram_by_provider |= self._ram
        if node:
            self._nodes[provider, node] += 1
            if self._nodes[provider, node] > 1:
                self.double_nodes.append(node)

    def removed(self, server: Server) -> None:
        """A server is gone."""
        provider, node = _labels(server)
        self._count(server, provider, -1)
        if node:
            self._nodes[provider, node] -= 1
            if not self._nodes[provider, node]:
                del self._nodes[provider, node]

    def reset(self, use: Use) -> None:
        """Begins anew from what lives now."""
        self.peak_servers, self.peak_cores, self.peak_ram = use
        self.peak_by_provider = +self._live
        self.peak_cores_by_provider = +self._cores
        self.peak_ram_by_provider = +self._ram
        self.double_nodes.clear()

    def _count(self, server: Server, provider: str, sign: int) -> None:
        self._live[provider] += sign
        self._cores[provider] += sign * server.flavor["vcpus"]
        self._ram[provider] += sign * server.flavor["ram"]


def _labels(server: Server) -> tuple[str, str]:
    return server.metadata.get(PROVIDER_KEY, ""), server.metadata.get(NODE_KEY, "")
