# SPDX-License-Identifier: Apache-2.0
"""``/admin``: settings and counters for tests and benchmarks whose launchers run in other processes.

No login is needed: the port is on loopback. `simulators.base.client` has its client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from simulators.base.application import SimulatedApplication
from simulators.base.core import SimulationCore
from simulators.base.messages import Answer, ApiError, Json, Request, json_answer
from simulators.base.observer import Observer

Handler = Callable[[Json], Json]


class CloudContents(Protocol):
    """What a simulated cloud tells of itself."""

    @property
    def core(self) -> SimulationCore[Any]: ...

    def contents(self) -> dict[str, int]: ...


class AdminApi:
    """Handlers by method and path. The caller holds the core's lock.

    A cloud adds its own handlers to ``handlers`` and its own counters to ``state``.

    :param observer: of its machines.
    :param machines: the cloud's word for them.
    """

    def __init__(
        self, cloud: CloudContents, application: SimulatedApplication, observer: Observer, machines: str
    ) -> None:
        self._contents = cloud.contents
        self._core = cloud.core
        self._application = application
        self._observer = observer
        self._peak = f"peak_{machines}"
        self.handlers: dict[tuple[str, str], Handler] = {
            ("GET", "/admin/state"): lambda _body: self.state(),
            ("GET", "/admin/knobs"): lambda _body: self._knobs(),
            ("POST", "/admin/knobs"): self._change,
            ("POST", "/admin/reset-counters"): lambda _body: self.reset_counters(),
        }

    def add_deeds(self, deeds: Mapping[str, Callable[[Json], object]]) -> None:
        """Adds what ``POST /admin/<name>`` does; its answer is empty."""
        for name, deed in deeds.items():
            self.handlers["POST", f"/admin/{name}"] = _without_result(deed)

    def add_makers(self, key: str, makers: Mapping[str, Callable[..., str]]) -> None:
        """Adds ``POST /admin/add``, which makes something that no client knows of.

        :param key: in the answer, of what a maker returns.
        :param makers: by ``kind`` in the request; they get the rest of it.
        """

        def add(body: Json) -> Json:
            arguments = dict(body)
            maker = makers.get(str(arguments.pop("kind", None)))
            if maker is None:
                raise ApiError(400, f"kind must be one of {', '.join(makers)}")
            return {key: maker(**arguments)}

        self.handlers["POST", "/admin/add"] = add

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
        """Calls, events, bugs, contents, and what the observer has seen."""
        return {
            "calls": dict(self._application.calls),
            "events": dict(self._core.events),
            "bugs": list(self._application.bugs),
            "contents": self._contents(),
            self._peak: self._observer.peak_machines,
            **self._observer.state(),
        }

    def reset_counters(self) -> Json:
        """Sets counters and peaks back; returns the state before."""
        before = self.state()
        self._application.calls.clear()
        self._core.events.clear()
        self._observer.reset()
        return before

    def _knobs(self) -> Json:
        content: Json = self._core.knobs.as_json()
        return content

    def _change(self, body: Json) -> Json:
        self._core.knobs.update(body)
        return self._knobs()


def _without_result(deed: Callable[[Json], object]) -> Handler:
    def handler(body: Json) -> Json:
        deed(body)
        return {}

    return handler
