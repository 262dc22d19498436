# SPDX-License-Identifier: Apache-2.0
"""`AdminClient`: steers a simulator that runs in another process, through ``/admin``."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

TIMEOUT_SECONDS = 30.0


class AdminClient:
    """All methods block for one HTTP call and raise ValueError with the simulator's words when it refuses.

    :param url: for example ``http://127.0.0.1:5000``.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        # A proxy of the environment has nothing to do with loopback.
        self._opener = build_opener(ProxyHandler({}))

    def state(self) -> dict[str, Any]:
        """Counters (``calls``, ``events``), ``bugs``, and what else the cloud tells."""
        return self.call("GET", "state")

    def knobs(self) -> dict[str, Any]:
        """All settings."""
        return self.call("GET", "knobs")

    def change(self, **changes: object) -> None:
        """Changes settings, as `SimulatorSettings.update` takes them."""
        self.call("POST", "knobs", changes)

    def reset_counters(self) -> dict[str, Any]:
        """Sets counters and peaks back; returns the state before."""
        return self.call("POST", "reset-counters", {})

    def call(self, method: str, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """One call of ``/admin/<name>``."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.url}/admin/{name}", data=data, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                content: dict[str, Any] = json.loads(answer.read())
        except HTTPError as error:
            with error:
                raise ValueError(json.loads(error.read()).get("error", str(error))) from None
        return content
