# SPDX-License-Identifier: Apache-2.0
"""`SimulatorClient`: steers a simulator that runs in another process, through ``/admin``."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

TIMEOUT_SECONDS = 30.0


class SimulatorClient:
    """All methods block for one HTTP call and raise ValueError with the simulator's words when it refuses.

    :param url: for example ``http://127.0.0.1:5000``.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        # A proxy of the environment has nothing to do with loopback.
        self._opener = build_opener(ProxyHandler({}))

    def state(self) -> dict[str, Any]:
        """Counters (``calls``, ``events``), ``contents``, the ``peak_...`` values, ``double_nodes`` and ``bugs``."""
        return self._call("GET", "state")

    def servers(self) -> list[dict[str, Any]]:
        """``id``, ``status``, ``task_state`` and ``metadata`` of all that live, also where lists do not show them."""
        servers: list[dict[str, Any]] = self._call("GET", "servers")["servers"]
        return servers

    def images(self) -> list[dict[str, Any]]:
        """All images as Glance shows them, hidden and unfinished ones, too."""
        images: list[dict[str, Any]] = self._call("GET", "images")["images"]
        return images

    def knobs(self) -> dict[str, Any]:
        """All settings."""
        return self._call("GET", "knobs")

    def change(self, **changes: object) -> None:
        """Changes settings, as `Knobs.update` takes them."""
        self._call("POST", "knobs", changes)

    def add(self, kind: str, **arguments: object) -> str:
        """Makes something that no client knows of, and returns its id.

        :param kind: ``server``, ``port``, ``floating_ip``, ``volume`` or ``image``; arguments as the ``add_...`` of
            `Cloud`.
        """
        return str(self._call("POST", "add", {"kind": kind} | arguments)["id"])

    def vanish(self, server_id: str) -> None:
        """Removes a server behind everybody's back."""
        self._call("POST", "vanish", {"id": server_id})

    def release_stuck(self) -> None:
        """Ends stuck builds and deletions."""
        self._call("POST", "release-stuck", {})

    def expire_tokens(self) -> None:
        """Makes all tokens invalid."""
        self._call("POST", "expire-tokens", {})

    def reset_counters(self) -> dict[str, Any]:
        """Sets counters and peaks back; returns the state before."""
        return self._call("POST", "reset-counters", {})

    def _call(self, method: str, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}/admin/{name}", data=data, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                content: dict[str, Any] = json.loads(answer.read())
        except HTTPError as error:
            with error:
                raise ValueError(json.loads(error.read()).get("error", str(error))) from None
        return content
