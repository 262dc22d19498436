# SPDX-License-Identifier: Apache-2.0
"""`GceSimulatorClient`: steers a simulated project that runs in another process, through ``/admin``."""

from __future__ import annotations

from typing import Any

from simulators.base.client import AdminClient


class GceSimulatorClient(AdminClient):
    """``state`` has ``contents``, the ``peak_...`` values and ``double_nodes``, too."""

    def instances(self) -> list[dict[str, Any]]:
        """``name``, ``zone``, ``status``, ``metadata`` and ``labels`` of all, also where lists do not show them."""
        instances: list[dict[str, Any]] = self.call("GET", "instances")["instances"]
        return instances

    def add(self, kind: str, **arguments: object) -> str:
        """Makes something that no client knows of, and returns its name.

        :param kind: ``instance``, ``disk``, ``address`` or ``image``; arguments as the ``add_...`` of `Project`.
        """
        return str(self.call("POST", "add", {"kind": kind} | arguments)["name"])

    def vanish(self, name: str) -> None:
        """Removes an instance behind everybody's back."""
        self.call("POST", "vanish", {"name": name})

    def preempt(self, name: str) -> None:
        """Google takes a spot instance away."""
        self.call("POST", "preempt", {"name": name})

    def terminate(self, name: str) -> None:
        """An instance stops."""
        self.call("POST", "terminate", {"name": name})

    def release_stuck(self) -> None:
        """Ends deletions that are stuck."""
        self.call("POST", "release-stuck", {})
