# SPDX-License-Identifier: Apache-2.0
"""`AzureCloud`: the simulated Azure subscription, steered and seen as chaos runs do it with the simulated OpenStack."""

from __future__ import annotations

from typing import Any

from nodepool.testing.azure import AzureSimulatorClient
from nodepool.testing.openstack import SimulatorClient


class AzureCloud(SimulatorClient):
    """Servers are VMs, ports are network interfaces. Each VM has a public address and a disk, which are not counted."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._subscription = AzureSimulatorClient(url)

    def state(self) -> dict[str, Any]:
        state = self._subscription.state()
        found = state["contents"]
        contents = {
            "servers": found["vms"],
            "ports": found["nics"],
            "floating_ips": found["addresses"] - found["vms"],
            "volumes": found["disks"] - found["vms"],
        }
        return {**state, "contents": contents, "peak_servers": state["peak_vms"]}

    def servers(self) -> list[dict[str, Any]]:
        return [{"id": vm["name"], "metadata": vm["tags"], "status": vm["state"]} for vm in self._subscription.vms()]

    def vanish(self, server_id: str) -> None:
        self._subscription.vanish(server_id)

    def release_stuck(self) -> None:
        self._subscription.release_stuck()

    def change(self, **changes: Any) -> None:
        """As the faults name them."""
        self._subscription.change(**translated(changes))


def translated(changes: dict[str, Any]) -> dict[str, Any]:
    """Settings of the simulated OpenStack as those of the subscription."""
    found: dict[str, Any] = {}
    if "errors" in changes:
        found["errors"] = [_error(rule) for rule in changes["errors"]]
    if "boots" in changes:
        found["boots"] = [_boot(rule) for rule in changes["boots"]]
    if "deletes" in changes:
        # One that went wrong is to be seen only by that the VM is still there.
        found["deletes"] = [{**rule, "kind": "swallowed"} for rule in changes["deletes"]]
    if "hidden_rate" in changes:
        found |= {"hidden_rate": changes["hidden_rate"], "ghost_rate": changes["hidden_rate"]}
    if "hidden_seconds" in changes:
        found |= {"hidden_seconds": changes["hidden_seconds"], "ghost_seconds": changes["hidden_seconds"]}
    leaks = [changes[name] for name in ("port_leak_rate", "volume_leak_rate") if name in changes]
    if leaks:
        found["leak_rate"] = max(leaks)
    if "quota" in changes:
        found["quotas"] = {"virtualMachines": changes["quota"]["instances"]}
    return found


def _error(rule: dict[str, Any]) -> dict[str, Any]:
    operations = {"compute.create_server": "virtualMachines.put", "compute.*": "virtualMachines.*"}
    return {**rule, "operation": operations.get(rule["operation"], rule["operation"])}


def _boot(rule: dict[str, Any]) -> dict[str, Any]:
    kinds = {
        "error": {"kind": "failed"},
        "no-valid-host": {"kind": "failed", "code": "AllocationFailed", "message": "Allocation failed."},
    }
    return {**rule, **kinds.get(rule["kind"], {})}
