# SPDX-License-Identifier: Apache-2.0
"""`KubernetesSimulatorClient`: steers a simulated cluster that runs in another process, through ``/admin``."""

from __future__ import annotations

from typing import Any

from simulators.base.client import AdminClient


class KubernetesSimulatorClient(AdminClient):
    """``state`` has ``contents``, the ``peak_...`` values and ``double_nodes``, too."""

    def namespaces(self) -> list[dict[str, Any]]:
        """All, as the API shows them."""
        namespaces: list[dict[str, Any]] = self.call("GET", "namespaces")["namespaces"]
        return namespaces

    def end_namespace(self, name: str) -> None:
        """Somebody deletes a namespace."""
        self.call("POST", "end-namespace", {"namespace": name})

    def release_stuck(self) -> None:
        """Pods that are stuck in Terminating end."""
        self.call("POST", "release-stuck", {})
