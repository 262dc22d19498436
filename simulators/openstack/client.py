# SPDX-License-Identifier: Apache-2.0
"""`SimulatorClient`: steers a simulated OpenStack that runs in another process, through ``/admin``."""

from __future__ import annotations

from typing import Any

from simulators.base.client import AdminClient


class SimulatorClient(AdminClient):
    """``state`` has ``contents``, the ``peak_...`` values and ``double_nodes``, too."""

    def servers(self) -> list[dict[str, Any]]:
        """``id``, ``status``, ``task_state`` and ``metadata`` of all that live, also where lists do not show them."""
        servers: list[dict[str, Any]] = self.call("GET", "servers")["servers"]
        return servers

    def images(self) -> list[dict[str, Any]]:
        """All images as Glance shows them, hidden and unfinished ones, too."""
        images: list[dict[str, Any]] = self.call("GET", "images")["images"]
        return images

    def add(self, kind: str, **arguments: object) -> str:
        """Makes something that no client knows of, and returns its id.

        :param kind: ``server``, ``port``, ``floating_ip``, ``volume`` or ``image``; arguments as the ``add_...`` of
            `Cloud`.
        """
        return str(self.call("POST", "add", {"kind": kind} | arguments)["id"])

    def vanish(self, server_id: str) -> None:
        """Removes a server behind everybody's back."""
        self.call("POST", "vanish", {"id": server_id})

    def release_stuck(self) -> None:
        """Ends stuck builds and deletions."""
        self.call("POST", "release-stuck", {})

    def expire_tokens(self) -> None:
        """Makes all tokens invalid."""
        self.call("POST", "expire-tokens", {})
