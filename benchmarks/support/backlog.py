# SPDX-License-Identifier: Apache-2.0
"""A queue that never gets shorter: so many requests wait, and each node is held for a while by its job."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from benchmarks.support.populate import create_requests
from tests.support.pool_znodes import PoolZnodes
from tests.support.zuul_client import ZuulClient, nodeset_of

#: More than there are nodes at once: a job is a thread that sleeps.
JOBS = 64
SUBMITTERS = 4


class Backlog:
    """Keeps ``waiting`` requests waiting between `start` and `stop`; each that is fulfilled is replaced.

    :param hold_seconds: from the completion event until the node is given back.
    :param tenants: that ask in turn.
    """

    def __init__(self, client: ZuulClient, label: str, waiting: int, hold_seconds: float, tenants: int = 1) -> None:
        self._client = client
        self._label = label
        self._waiting = waiting
        self._hold_seconds = hold_seconds
        self._tenants = itertools.cycle([f"tenant{number or ''}" for number in range(tenants)])
        self._changed = threading.Condition()
        self._requests: dict[str, Any] = {}
        self._completed: queue.SimpleQueue[tuple[Any, float] | None] = queue.SimpleQueue()
        self._stopping = False
        self._pool = ThreadPoolExecutor(JOBS)
        self._submitters = ThreadPoolExecutor(SUBMITTERS)
        self._thread = threading.Thread(target=self._run, name="backlog")
        #: When each job ended, seconds of time.monotonic().
        self.ended: list[float] = []
        self.failed = 0

    def start(self) -> None:
        """Submits; does not wait for nodes."""
        self._client.on_completed = lambda request: self._completed.put((request, time.monotonic()))
        self._thread.start()
        self.grow(self._waiting)

    def grow(self, count: int) -> None:
        """Makes the queue longer; blocks until that is submitted."""
        list(self._submitters.map(lambda _: self._submit(), range(count)))

    def fill(self, znodes: PoolZnodes, count: int) -> None:
        """As `grow`, but the requests are written without Zuul's code, which takes ten times as long."""
        ids = create_requests(znodes, count, self._label, self._client.system_id, self._tenants)
        with self._changed:
            self._requests |= {name: SimpleNamespace(id=name, nodeset=nodeset_of([self._label])) for name in ids}
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """Requests that were submitted and whose jobs have not begun."""
        return len(self._requests)

    def stop(self, *, cancel: bool = True) -> None:
        """Cancels what waits, and blocks until all jobs have ended. Nodes that were ready just then stay ready."""
        with self._changed:
            self._stopping = True
        self._submitters.shutdown(wait=True)
        self._completed.put(None)
        self._thread.join()
        self._pool.shutdown(wait=True)
        # Those whose jobs have begun are not here any more.
        for request in self._requests.values() if cancel else ():
            self._client.cancel(request)

    def _submit(self) -> None:
        request = self._client.submit([self._label], tenant=next(self._tenants))
        with self._changed:
            self._requests[request.id] = request
            self._changed.notify_all()

    def _run(self) -> None:
        while (completed := self._completed.get()) is not None:
            with self._changed:
                if self._stopping:
                    continue
                self._submitters.submit(self._submit)
                self._pool.submit(self._job, *completed)

    def _job(self, request: Any, moment: float) -> None:
        # The event can be here before the call that submitted the request has returned.
        with self._changed:
            self._changed.wait_for(lambda: request.id in self._requests)
            request.nodeset = self._requests.pop(request.id).nodeset
        if request.state != "fulfilled":
            self.failed += 1
            self._client.cancel(request)
            return
        nodeset = self._client.accept(request)
        self._client.use(nodeset)
        time.sleep(max(0.0, moment + self._hold_seconds - time.monotonic()))
        self._client.give_back(nodeset)
        self.ended.append(time.monotonic())
