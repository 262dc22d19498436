# SPDX-License-Identifier: Apache-2.0
"""Connection checks of new nodes (rules K), each in a thread: they wait for their hosts most of the time."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Executor, Future
from typing import Final

from nodepool.driver.framework import keyscan
from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.guard import Guard

log = logging.getLogger("nodepool.driver.statemachine.Scans")

#: Hosts that are checked at once; others queue (K-4).
MAX_SCANS: Final = 100


class Scans:
    """All checks of one provider.

    The time of a host begins with its check, not while it waits for its turn.

    :param executor: runs the checks, `MAX_SCANS` at once; it is shut down at the end.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._stopped = threading.Event()

    def scan(self, host: str, port: int, timeout: float, connection_type: str | None) -> Future[tuple[str, ...]]:
        """Begin a check; does not block. The result is the host keys; it raises ScanFailed.

        :param timeout: ``boot-timeout``, seconds.
        :param connection_type: of the node; only for those that speak SSH are keys collected (K-2).
        """
        try:
            return self._executor.submit(self._scan, host, port, timeout, connection_type or "ssh")
        except RuntimeError as error:
            # It was shut down, or the system has no more threads.
            ended: Future[tuple[str, ...]] = Future()
            ended.set_exception(ScanFailed("the provider stops" if self._stopped.is_set() else str(error)))
            return ended

    def stop(self) -> None:
        """Give all up; what runs ends soon. Does not block."""
        self._stopped.set()
        self._executor.shutdown(wait=False)

    def join(self) -> None:
        """Wait for what runs, after `stop`."""
        self._executor.shutdown(wait=True)

    def _scan(self, host: str, port: int, timeout: float, connection_type: str) -> tuple[str, ...]:
        # An error that was not foreseen is one of this host: it does not count against the cloud.
        with Guard(log, "Error while scanning %s", host, but=ScanFailed) as guard:
            try:
                if not self._stopped.is_set():
                    found = keyscan.scan(
                        host, port, timeout=timeout, connection_type=connection_type, cancelled=self._stopped
                    )
                    return found.host_keys
            except ScanFailed:
                if not self._stopped.is_set():
                    raise
            raise ScanFailed("the provider stops")
        raise ScanFailed(f"{host}: {type(guard.error).__name__}: {guard.error}")
