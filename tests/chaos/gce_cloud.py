# SPDX-License-Identifier: Apache-2.0
"""`GceCloud`: the simulated Google project, steered and seen as the chaos runs do it with the simulated OpenStack."""

from __future__ import annotations

from typing import Any

from nodepool.testing.gce import GceSimulatorClient
from nodepool.testing.openstack import SimulatorClient


class GceCloud(SimulatorClient):
    """Servers are instances; each has a boot disk, which is not counted. There are no ports or floating IPs."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._project = GceSimulatorClient(url)

    def state(self) -> dict[str, Any]:
        state = self._project.state()
        instances, disks = state["contents"]["instances"], state["contents"]["disks"]
        contents = {"servers": instances, "ports": instances, "floating_ips": 0, "volumes": disks - instances}
        return {**state, "contents": contents, "peak_servers": state["peak_instances"]}

    def servers(self) -> list[dict[str, Any]]:
        return self._project.instances()

    def vanish(self, server_id: str) -> None:
        self._project.vanish(server_id)

    def release_stuck(self) -> None:
        self._project.release_stuck()

    def change(self, **changes: Any) -> None:
        """As the faults name them."""
        self._project.change(**translated(changes))


def translated(changes: dict[str, Any]) -> dict[str, Any]:
    """Settings of the simulated OpenStack as those of the project. What there is not at Google is left out."""
    found: dict[str, Any] = {}
    if "errors" in changes:
        found["errors"] = [_error(rule) for rule in changes["errors"]]
    if "boots" in changes:
        found["boots"] = [_boot(rule) for rule in changes["boots"]]
    if "deletes" in changes:
        # A deletion that went wrong is to be seen in its operation, and by that the instance still runs.
        found["deletes"] = [{**rule, "kind": "failed"} for rule in changes["deletes"]]
    if "hidden_rate" in changes:
        found |= {"hidden_rate": changes["hidden_rate"], "ghost_rate": changes["hidden_rate"]}
    if "hidden_seconds" in changes:
        found |= {"hidden_seconds": changes["hidden_seconds"], "ghost_seconds": changes["hidden_seconds"]}
    if "volume_leak_rate" in changes:
        found["leak_rate"] = changes["volume_leak_rate"]
    if "quota" in changes:
        found["quotas"] = {"INSTANCES": changes["quota"]["instances"]}
    return found


def _error(rule: dict[str, Any]) -> dict[str, Any]:
    operations = {"compute.create_server": "instances.insert", "compute.*": "instances.*"}
    found = {**rule, "operation": operations.get(rule["operation"], rule["operation"])}
    if rule["kind"] == "429":
        found |= {"kind": "403", "reason": "rateLimitExceeded"}
        found.pop("retry_after", None)
    return found


def _boot(rule: dict[str, Any]) -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "error": {"kind": "failed"},
        "no-valid-host": {
            "kind": "failed",
            "code": "ZONE_RESOURCE_POOL_EXHAUSTED",
            "message": "The zone does not have enough resources available to fulfill the request.",
            "status": 503,
        },
    }
    return {**rule, **kinds.get(rule["kind"], {})}
