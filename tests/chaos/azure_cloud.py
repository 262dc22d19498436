# SPDX-License-Identifier: Apache-2.0
"""`AzureCloud`: the simulated Azure subscription, steered and seen as chaos runs do it with the simulated OpenStack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulators.azure import AzureSimulatorClient
from tests.chaos.translated_cloud import TranslatedCloud, Translation

TRANSLATION = Translation(
    servers="vms",
    volumes="disks",
    create="virtualMachines.put",
    compute="virtualMachines.*",
    no_host={"code": "AllocationFailed", "message": "Allocation failed."},
    quota=lambda limit: {"quotas": {"virtualMachines": limit}},
    leaks=("port_leak_rate", "volume_leak_rate"),
)


class AzureCloud(TranslatedCloud):
    """Servers are VMs, ports are network interfaces. Each VM has a public address, which is not counted."""

    def __init__(self, url: str) -> None:
        super().__init__(AzureSimulatorClient(url), url, TRANSLATION)

    def counted(self, state: Mapping[str, Any]) -> dict[str, int]:
        found = state["contents"]
        addresses = found["addresses"] - found["vms"]
        return {**super().counted(state), "ports": found["nics"], "floating_ips": addresses}

    def servers(self) -> list[dict[str, Any]]:
        return [{"id": vm["name"], "metadata": vm["tags"], "status": vm["state"]} for vm in super().servers()]
