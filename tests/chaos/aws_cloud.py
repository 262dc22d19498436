# SPDX-License-Identifier: Apache-2.0
"""`AwsCloud`: the simulated AWS region, steered and seen as the chaos runs do it with the simulated OpenStack."""

from __future__ import annotations

from typing import Any

from nodepool.testing.aws import AwsSimulatorClient
from nodepool.testing.openstack import SimulatorClient


class AwsCloud(SimulatorClient):
    """Servers are instances; each has a root volume, which is not counted. There are no ports or floating IPs."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._region = AwsSimulatorClient(url)

    def state(self) -> dict[str, Any]:
        state = self._region.state()
        instances, volumes = state["contents"]["instances"], state["contents"]["volumes"]
        contents = {"servers": instances, "ports": instances, "floating_ips": 0, "volumes": volumes - instances}
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
    """Settings of the simulated OpenStack as those of the region. What there is not on AWS is left out."""
    found: dict[str, Any] = {}
    if "errors" in changes:
        found["errors"] = [_error(rule) for rule in changes["errors"]]
    if "boots" in changes:
        found["boots"] = [_boot(rule) for rule in changes["boots"]]
    if "deletes" in changes:
        # An end that went wrong is to be seen only by that the instance still runs.
        found["ends"] = [{**rule, "kind": "swallowed"} for rule in changes["deletes"]]
    if "hidden_rate" in changes:
        found |= {"hidden_rate": changes["hidden_rate"], "tag_lag_rate": changes["hidden_rate"], "late_tags": True}
    if "hidden_seconds" in changes:
        found |= {"hidden_seconds": changes["hidden_seconds"], "tag_lag_seconds": changes["hidden_seconds"]}
    if "quota" in changes:
        found["instance_limit"] = changes["quota"]["instances"]
    return found


def _error(rule: dict[str, Any]) -> dict[str, Any]:
    operations = {"compute.create_server": "ec2.RunInstances", "compute.*": "ec2.*"}
    found = {**rule, "operation": operations.get(rule["operation"], rule["operation"])}
    if rule["kind"] == "429":
        found |= {"kind": "503", "code": "RequestLimitExceeded"}
        found.pop("retry_after", None)
    return found


def _boot(rule: dict[str, Any]) -> dict[str, Any]:
    kinds = {
        "error": {"kind": "failed"},
        "no-valid-host": {
            "kind": "failed",
            "code": "Server.InsufficientInstanceCapacity",
            "message": "Insufficient capacity to satisfy instance request",
        },
    }
    return {**rule, **kinds.get(rule["kind"], {})}
