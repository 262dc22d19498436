# SPDX-License-Identifier: Apache-2.0
"""``/admin``: settings and counters for tests and benchmarks whose launchers run in other processes.

No login is needed: the port is on loopback. `nodepool.testing.simulator.client` has its client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nodepool.testing.simulator.application import SimulatedApplication
from nodepool.testing.simulator.core import SimulationCore
from nodepool.testing.simulator.messages import Answer, ApiError, Json, Request, json_answer

Handler = Callable[[Json], Json]


class AdminApi:
    """Handlers by method and path. The caller holds the core's lock.

    A cloud adds its own handlers to ``handlers`` and its own counters to ``state``.
    """

    def __init__(self, core: SimulationCore[Any], application: SimulatedApplication) -> None:
        self._core = core
        self._application = application
        self.handlers: dict[tuple[str, str], Handler] = {
            ("GET", "/admin/state"): lambda _body: self.state(),
            ("GET", "/admin/knobs"): lambda _body: self._knobs(),
            ("POST", "/admin/knobs"): self._change,
            ("POST", "/admin/reset-counters"): lambda _body: self.reset_counters(),
        }

    def handle(self, request: Request) -> Answer:
        """Serves it; errors are ``{"error": text}``."""
        handler = self.handlers.get((request.method, request.path))
        if handler is None:
            known = ", ".join(f"{method} {path}" for method, path in self.handlers)
            return json_answer({"error": f"there is no {request.method} {request.path}; there are {known}"}, 404)
        try:
            return json_answer(handler(request.json() if request.body else {}))
        except ApiError as error:
            return json_answer({"error": error.message}, error.status)
        except (TypeError, ValueError) as error:
            return json_answer({"error": str(error)}, 400)

    def state(self) -> Json:
        """Calls, events and bugs."""
        return {
            "calls": dict(self._application.calls),
            "events": dict(self._core.events),
            "bugs": list(self._application.bugs),
        }

    def reset_counters(self) -> Json:
        """Sets the counters back; returns the state before."""
        before = self.state()
        self._application.calls.clear()
        self._core.events.clear()
        return before

    def _knobs(self) -> Json:
        content: Json = self._core.knobs.as_json()
        return content

    def _change(self, body: Json) -> Json:
        self._core.knobs.update(body)
        return self._knobs()
