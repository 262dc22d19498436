# SPDX-License-Identifier: Apache-2.0
"""Watches the machines of a cloud for what tests assert: how many lived at once, and whether a node ever had two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

NODE_KEY, PROVIDER_KEY = "nodepool_node_id", "nodepool_provider_name"
INSTALLATION_KEY = "nodepool_installation_id"


class _Machine(NamedTuple):
    provider: str
    #: With the installation, which has its own ids of nodes; "" = it is no node's.
    node: str
    cores: int
    ram: int


class Observer:
    """Peaks since the start or the last `reset`.

    A machine lives from the accepted create to the end of its deletion.
    """

    def __init__(self) -> None:
        self.peak_machines = 0
        self.peak_cores = 0
        self.peak_ram = 0
        #: Most machines at once by the provider in their metadata.
        self.peak_by_provider: Counter[str] = Counter()
        #: The same for cores, and for RAM in MiB.
        self.peak_cores_by_provider: Counter[str] = Counter()
        self.peak_ram_by_provider: Counter[str] = Counter()
        #: Node ids that had two machines at once.
        self.double_nodes: list[str] = []
        self._machines: dict[str, _Machine] = {}
        self._live: Counter[str] = Counter()
        self._cores: Counter[str] = Counter()
        self._ram: Counter[str] = Counter()
        self._nodes: Counter[tuple[str, str]] = Counter()

    @property
    def machines(self) -> int:
        """How many live now."""
        return len(self._machines)

    def has(self, machine_id: str) -> bool:
        """Does this machine live?"""
        return machine_id in self._machines

    def present(self, machine_id: str, metadata: Mapping[str, str], cores: int, ram: int) -> None:
        """A machine was accepted, or its metadata are others now.

        :param ram: in MiB.
        """
        self.absent(machine_id)
        node, installation = metadata.get(NODE_KEY, ""), metadata.get(INSTALLATION_KEY, "")
        machine = _Machine(metadata.get(PROVIDER_KEY, ""), node and f"{node} {installation}".rstrip(), cores, ram)
        self._machines[machine_id] = machine
        self._count(machine, 1)
        if machine.node:
            self._nodes[machine.provider, machine.node] += 1
            if self._nodes[machine.provider, machine.node] > 1:
                self.double_nodes.append(machine.node)
        self._measure()

    def absent(self, machine_id: str) -> None:
        """A machine is gone."""
        machine = self._machines.pop(machine_id, None)
        if machine is None:
            return
        self._count(machine, -1)
        if machine.node:
            self._nodes[machine.provider, machine.node] -= 1
            if not self._nodes[machine.provider, machine.node]:
                del self._nodes[machine.provider, machine.node]

    def reset(self) -> None:
        """Begins anew from what lives now."""
        self.peak_machines = self.peak_cores = self.peak_ram = 0
        self.peak_by_provider.clear()
        self.peak_cores_by_provider.clear()
        self.peak_ram_by_provider.clear()
        self.double_nodes.clear()
        self._measure()

    def state(self) -> dict[str, Any]:
        """What it has seen, for ``/admin/state``."""
        return {
            "peak_by_provider": dict(self.peak_by_provider),
            "peak_cores_by_provider": dict(self.peak_cores_by_provider),
            "peak_ram_by_provider": dict(self.peak_ram_by_provider),
            "peak_cores": self.peak_cores,
            "peak_ram": self.peak_ram,
            "double_nodes": list(self.double_nodes),
        }

    def _measure(self) -> None:
        self.peak_machines = max(self.peak_machines, len(self._machines))
        self.peak_cores = max(self.peak_cores, self._cores.total())
        self.peak_ram = max(self.peak_ram, self._ram.total())
        self.peak_by_provider |= self._live
        self.peak_cores_by_provider |= self._cores
        self.peak_ram_by_provider |= self._ram

    def _count(self, machine: _Machine, sign: int) -> None:
        self._live[machine.provider] += sign
        self._cores[machine.provider] += sign * machine.cores
        self._ram[machine.provider] += sign * machine.ram
