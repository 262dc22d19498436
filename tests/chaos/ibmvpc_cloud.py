# SPDX-License-Identifier: Apache-2.0
"""`IbmVpcCloud`: the simulated IBM region, steered and seen as chaos runs do it with the simulated OpenStack."""

from __future__ import annotations

from typing import Any

from nodepool.testing.ibmvpc import IbmVpcSimulatorClient
from nodepool.testing.openstack import SimulatorClient

#: Free floating IPs that the pools keep, which are no left-overs.
KEPT_ADDRESSES = 2


class IbmVpcCloud(SimulatorClient):
    """Servers are instances; each has a boot volume, which is not counted, nor are floating IPs that it uses. There are
    no ports."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._region = IbmVpcSimulatorClient(url)

    def state(self) -> dict[str, Any]:
        state = self._region.state()
        instances, volumes = state["contents"]["instances"], state["contents"]["volumes"]
        contents = {
            "servers": instances,
            "ports": instances,
            "floating_ips": max(0, state["free_floating_ips"] - KEPT_ADDRESSES),
            "volumes": volumes - instances,
        }
        return {**state, "contents": contents, "peak_servers": state["peak_instances"]}

    def servers(self) -> list[dict[str, Any]]:
        return self._region.instances()

    def vanish(self, server_id: str) -> None:
        self._region.vanish(server_id)

    def release_stuck(self) -> None:
        self._region.release_stuck()

    def change(self, **changes: Any) -> None:
        """As the faults name them."""
        self._region.change(**translated(changes))


def translated(changes: dict[str, Any]) -> dict[str, Any]:
    """Settings of the simulated OpenStack as those of the region. What there is not at IBM is left out."""
    found: dict[str, Any] = {}
    if "errors" in changes:
        found["errors"] = [_error(rule) for rule in changes["errors"]]
    if "boots" in changes:
        found["boots"] = [_boot(rule) for rule in changes["boots"]]
    if "deletes" in changes:
        # A deletion that went wrong is to be seen only by that the instance still runs.
        found["deletes"] = [{**rule, "kind": "swallowed"} for rule in changes["deletes"]]
    if "hidden_rate" in changes:
        found |= {"hidden_rate": changes["hidden_rate"], "ghost_rate": changes["hidden_rate"]}
    if "hidden_seconds" in changes:
        found |= {"hidden_seconds": changes["hidden_seconds"], "ghost_seconds": changes["hidden_seconds"]}
    if "volume_leak_rate" in changes:
        found["leak_rate"] = changes["volume_leak_rate"]
    if "quota" in changes:
        found["quotas"] = {"instances": changes["quota"]["instances"]}
    return found


def _error(rule: dict[str, Any]) -> dict[str, Any]:
    operations = {"compute.create_server": "vpc.create_*", "compute.*": "vpc.*"}
    return {**rule, "operation": operations.get(rule["operation"], rule["operation"])}


def _boot(rule: dict[str, Any]) -> dict[str, Any]:
    kinds = {
        "error": {"kind": "failed"},
        "no-valid-host": {"kind": "failed", "code": "cannot_start_capacity"},
    }
    return {**rule, **kinds.get(rule["kind"], {})}
