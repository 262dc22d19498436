# SPDX-License-Identifier: Apache-2.0
"""The load: Zuul's own client code in this process, with few threads."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from benchmarks.suite.progress import Progress
from tests.support.zuul_client import ZuulClient

#: Enough to keep one connection busy, few enough not to fight for the interpreter.
SUBMITTERS = 4
EXECUTORS = 8
#: A request that takes this long means that something is broken.
DEADLINE_SECONDS = 900.0


@dataclass
class Run:
    """Times of one batch of requests, seconds of time.monotonic()."""

    submitted: dict[str, float] = field(default_factory=dict)
    fulfilled: dict[str, float] = field(default_factory=dict)
    failed: int = 0
    #: When the last request was worked off.
    end: float = 0.0

    def latencies(self) -> list[float]:
        """Seconds from right before the submit call to Zuul's completion event, per request."""
        return [self.fulfilled[name] - start for name, start in self.submitted.items()]

    @property
    def start(self) -> float:
        return min(self.submitted.values())

    @property
    def last_fulfilled(self) -> float:
        return max(self.fulfilled.values())


class Load:
    """Submits requests and works off what is fulfilled.

    :param progress: is told how many requests were completed.
    """

    def __init__(self, client: ZuulClient, progress: Progress | None = None) -> None:
        self.client = client
        self._progress = progress
        self._completed: queue.SimpleQueue[tuple[Any, float]] = queue.SimpleQueue()
        self._requests: dict[str, Any] = {}
        self._submitted = threading.Condition()
        client.on_completed = lambda request: self._completed.put((request, time.monotonic()))

    def run(self, count: int, label: str, work: Callable[[Any], None]) -> Run:
        """Submits ``count`` requests for one node; see `run_all`."""
        return self.run_all([[label]] * count, work)

    def run_all(self, requests: Sequence[Sequence[str]], work: Callable[[Any], None]) -> Run:
        """Submits requests at once and calls ``work`` in a few threads for each that is fulfilled.

        Blocks until all are through. :raises queue.Empty: no request was completed for a long time.

        :param requests: labels of each.
        """
        run, count = Run(), len(requests)
        with ThreadPoolExecutor(SUBMITTERS) as submitters, ThreadPoolExecutor(EXECUTORS) as executors:
            pending = [submitters.submit(self._submit, labels, run) for labels in requests]
            for number in range(count):
                request, moment = self._completed.get(timeout=DEADLINE_SECONDS)
                run.fulfilled[request.id] = moment
                if self._progress is not None:
                    self._progress.count(number + 1, count, "requests")
                if request.state == "fulfilled":
                    pending.append(executors.submit(self._work, request, work))
                else:
                    run.failed += 1
            for future in pending:
                future.result()
        run.end = time.monotonic()
        return run

    def use_and_return(self, request: Any) -> None:
        """The life of a node in a job, without the job."""
        nodeset = self.client.accept(request)
        self.client.use(nodeset)
        self.client.give_back(nodeset)

    def _submit(self, labels: Sequence[str], run: Run) -> None:
        start = time.monotonic()
        request = self.client.submit(labels)
        with self._submitted:
            run.submitted[request.id] = start
            self._requests[request.id] = request
            self._submitted.notify_all()

    def _work(self, request: Any, work: Callable[[Any], None]) -> None:
        # The event can be here before the call that submitted the request has returned.
        with self._submitted:
            self._submitted.wait_for(lambda: request.id in self._requests, DEADLINE_SECONDS)
            request.nodeset = self._requests.pop(request.id).nodeset
        work(request)
