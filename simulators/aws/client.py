# SPDX-License-Identifier: Apache-2.0
"""`AwsSimulatorClient`: steers a simulated region that runs in another process, through ``/admin``."""

from __future__ import annotations

from typing import Any

from simulators.base.client import AdminClient


class AwsSimulatorClient(AdminClient):
    """``state`` has ``contents``, the ``peak_...`` values and ``double_nodes``, too."""

    def instances(self) -> list[dict[str, Any]]:
        """``id``, ``state`` and ``metadata`` of all that have not ended, also where lists do not show them."""
        instances: list[dict[str, Any]] = self.call("GET", "instances")["instances"]
        return instances

    def add(self, kind: str, **arguments: object) -> str:
        """Makes something that no client knows of, and returns its id.

        :param kind: ``instance`` or ``volume``; arguments as the ``add_...`` of `Region`.
        """
        return str(self.call("POST", "add", {"kind": kind} | arguments)["id"])

    def vanish(self, instance_id: str) -> None:
        """Removes an instance behind everybody's back."""
        self.call("POST", "vanish", {"id": instance_id})

    def interrupt(self, instance_id: str) -> None:
        """AWS takes a spot instance away."""
        self.call("POST", "interrupt", {"id": instance_id})

    def release_stuck(self) -> None:
        """Ends what is stuck: pending instances run, those that shut down end."""
        self.call("POST", "release-stuck", {})
