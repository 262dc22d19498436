# SPDX-License-Identifier: Apache-2.0
"""Takes each request through delay and faults; counts the calls."""

from __future__ import annotations

import logging
from collections import Counter
from fnmatch import fnmatchcase
from typing import Any

from simulators.base.core import SimulationCore
from simulators.base.messages import Answer, BodySink, Request, SteeredSink
from simulators.base.rules import ErrorRule

LOG = logging.getLogger("simulators.base")


class SimulatedApplication:
    """Base of the applications of simulated clouds. A subclass says what a request is, and serves it.

    :ivar calls: how often each operation was called, for example ``compute.list_servers``.
    :ivar bugs: exceptions inside the simulator; a test should find none.
    """

    def __init__(self, core: SimulationCore[Any]) -> None:
        self._core = core
        self.calls: Counter[str] = Counter()
        self.bugs: list[str] = []

    def operation(self, request: Request) -> str | None:
        """The name of the operation, ``<service>.<operation>``; None = not a call of the cloud's API."""
        raise NotImplementedError

    def serve(self, request: Request) -> Answer:
        """Does it. The lock is held, and what was due has happened."""
        raise NotImplementedError

    def body_sink(self, request: Request) -> BodySink | None:
        """Where the body goes; None keeps it in the request."""
        return None

    def delay(self, request: Request) -> float:
        """The latency that the settings say, in seconds."""
        core = self._core
        knobs = core.knobs
        operation = self.operation(request) if knobs.latencies or knobs.latency_seconds[1] else None
        with core.lock:
            seconds = 0.0
            if operation is not None:
                matching = (value for pattern, value in knobs.latencies.items() if fnmatchcase(operation, pattern))
                seconds = core.draw(next(matching, knobs.latency_seconds), "latency")
            body = max(0.0, request.sink.pause_seconds()) if isinstance(request.sink, SteeredSink) else 0.0
            return seconds + body

    def handle(self, request: Request) -> Answer:
        """Serves it. Never raises."""
        try:
            with self._core.lock:
                self._core.run_due()
                answer = self.serve(request)
                if isinstance(request.sink, SteeredSink):
                    # Unless it is kept by now.
                    request.sink.abandon()
                return answer
        except Exception as error:
            # Who calls the simulator, and the test, are to see it.
            LOG.exception("Bug in the simulator: %s %s", request.method, request.path)
            self.bugs.append(f"{request.method} {request.path}: {error!r}")
            return Answer(500, f"bug in the simulator: {error!r}".encode(), content_type="text/plain")

    def fault(self, operation: str) -> ErrorRule | None:
        """Counts the call; what goes wrong with it."""
        self.calls[operation] += 1
        core = self._core
        for rule in core.knobs.errors:
            if fnmatchcase(operation, rule.operation) and core.applies(rule, "api faults"):
                core.events[f"calls {rule.kind}{' after' if rule.after else ''}"] += 1
                return rule  # type: ignore[no-any-return]
        return None
