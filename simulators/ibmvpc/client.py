# SPDX-License-Identifier: Apache-2.0
"""`IbmVpcSimulatorClient`: steers a simulated region that runs in another process, through ``/admin``."""

from __future__ import annotations

from typing import Any

from simulators.base.client import AdminClient


class IbmVpcSimulatorClient(AdminClient):
    """``state`` has ``contents``, the ``peak_...`` values and ``double_nodes``, too."""

    def instances(self) -> list[dict[str, Any]]:
        """``id``, ``name``, ``state`` and ``metadata`` of all, also where lists do not show them."""
        instances: list[dict[str, Any]] = self.call("GET", "instances")["instances"]
        return instances

    def add(self, kind: str, **arguments: object) -> str:
        """Makes something that no client knows of, and returns its id.

        :param kind: ``instance``, ``floating_ip``, ``volume``, ``image`` or ``resource_group``.
        :param arguments: as the ``add_...`` of `VpcRegion`; of a group its name.
        """
        return str(self.call("POST", "add", {"kind": kind} | arguments)["id"])

    def vanish(self, instance_id: str) -> None:
        """Removes an instance behind everybody's back."""
        self.call("POST", "vanish", {"id": instance_id})

    def preempt(self, instance_id: str) -> None:
        """IBM takes the capacity of an instance away."""
        self.call("POST", "preempt", {"id": instance_id})

    def release_stuck(self) -> None:
        """Ends deletions that are stuck."""
        self.call("POST", "release-stuck", {})
