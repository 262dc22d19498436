# SPDX-License-Identifier: Apache-2.0
"""Many jobs at once through one Zuul client, with a check that no host is ever given to two of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tests.support.wait import wait_for
from tests.support.zuul_client import ZuulClient


class ZuulJobs:
    """A context manager: jobs run in threads of it; leaving it waits for all and raises the first error."""

    def __init__(self, client: ZuulClient, threads: int = 8) -> None:
        self._client = client
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="zuul-job")
        self._jobs: list[Future[None]] = []
        self._lock = threading.Lock()
        self._in_use: dict[tuple[str, int], str] = {}

    def __enter__(self) -> ZuulJobs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)
        if kind is None:
            for job in self._jobs:
                job.result()

    def submit(self, count: int, labels: Sequence[str] = ("small",)) -> None:
        """Queues ``count`` jobs, each with one node per label."""
        self._jobs += [self._pool.submit(self._job, labels) for _ in range(count)]

    @property
    def done(self) -> int:
        """How many jobs have ended."""
        return sum(job.done() for job in self._jobs)

    def wait_done(self, count: int) -> None:
        """Blocks until ``count`` jobs have ended, and raises the error of those that failed."""
        wait_for(f"{count} jobs done", lambda: self.done >= count, 90)
        for job in [job for job in self._jobs if job.done()]:
            job.result()

    def _job(self, labels: Sequence[str]) -> None:
        request = self._client.submit_and_wait(labels)
        assert request.state == "fulfilled", f"request {request.id} is {request.state}"
        nodeset = self._client.accept(request)
        places = [(node.interface_ip, node.slot) for node in nodeset.getNodes()]
        with self._lock:
            for place in places:
                assert place not in self._in_use, f"{place} was given to {self._in_use[place]} and to {request.id}"
                self._in_use[place] = request.id
        self._client.use(nodeset)
        with self._lock:
            for place in places:
                del self._in_use[place]
        self._client.give_back(nodeset)
