# SPDX-License-Identifier: Apache-2.0
"""`AzureSimulatorClient`: steers a simulated subscription that runs in another process, through ``/admin``."""

from __future__ import annotations

from typing import Any

from simulators.base.client import AdminClient


class AzureSimulatorClient(AdminClient):
    """``state`` has ``contents``, the ``peak_...`` values and ``double_nodes``, too."""

    def vms(self) -> list[dict[str, Any]]:
        """``name``, ``state`` and ``tags`` of all, also where lists do not show them."""
        vms: list[dict[str, Any]] = self.call("GET", "vms")["vms"]
        return vms

    def add(self, kind: str, **arguments: object) -> str:
        """Makes something that no client knows of, and returns its name.

        :param kind: ``vm``, ``disk`` or ``image``; arguments as the ``add_...`` of `Subscription`.
        """
        return str(self.call("POST", "add", {"kind": kind} | arguments)["name"])

    def vanish(self, name: str) -> None:
        """Removes a VM behind everybody's back."""
        self.call("POST", "vanish", {"name": name})

    def evict(self, name: str) -> None:
        """Azure takes a spot VM away."""
        self.call("POST", "evict", {"name": name})

    def release_stuck(self) -> None:
        """Ends deletions that are stuck."""
        self.call("POST", "release-stuck", {})
