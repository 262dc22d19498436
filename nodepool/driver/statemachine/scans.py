# SPDX-License-Identifier: Apache-2.0
"""Connection checks of new nodes (rules K).

Hundreds of hosts can wait in one thread. A limited number is scanned at a time.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.framework import keyscan
from nodepool.driver.framework.keyscan import SSH_CONNECTION_TYPES, ScanFailed
from nodepool.driver.statemachine.connects import ConnectWaiter
from nodepool.guard import Guard

log = logging.getLogger("nodepool.driver.statemachine.Scans")

#: Hosts that are checked at once; others queue (K-4).
MAX_SCANS: Final = 100
#: Key exchanges at once: they cost processor time, not patience.
EXCHANGE_THREADS: Final = 8
#: A host that accepts connections but does not negotiate gets its thread for this long, then others have their turn.
SLICE_SECONDS: Final = 10.0


class _Scan:
    def __init__(self, host: str, port: int, timeout: float, ssh: bool) -> None:
        self.host = host
        self.port = port
        self.timeout = timeout
        self.ssh = ssh
        self.deadline = 0.0
        #: When a thread was asked for.
        self.submitted = 0.0
        self.slice_seconds = SLICE_SECONDS
        self.connected: socket.socket | None = None
        self.future: Future[tuple[str, ...]] = Future()


class Scans:
    """All checks of one provider.

    The time of a host begins with its check, not while it waits for its turn. ``_lock`` guards ``_queue``, ``_active``
    and ``_connected``; it is not held across I/O.

    :param name: for the name of the thread that waits for connections.
    :param executor: runs the key exchanges; it is shut down at the end.
    """

    def __init__(self, name: str, executor: Executor, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._queue: deque[_Scan] = deque()
        self._active = 0
        #: Connections whose key exchange has not begun.
        self._connected: set[socket.socket] = set()
        self._connects = ConnectWaiter(f"{name}-connect")
        self._exchanges = executor
        self._cancelled = threading.Event()

    def scan(self, host: str, port: int, timeout: float, connection_type: str | None) -> Future[tuple[str, ...]]:
        """Begin a check; does not block. The result is the host keys; it raises ScanFailed.

        :param timeout: ``boot-timeout``, seconds.
        :param connection_type: of the node; only for those that speak SSH are keys collected (K-2).
        """
        scan = _Scan(host, port, timeout, (connection_type or "ssh") in SSH_CONNECTION_TYPES)
        with self._lock:
            self._queue.append(scan)
        self._next()
        return scan.future

    def stop(self) -> None:
        """Give all up; what runs ends soon. Not every result will be there. Does not block."""
        self._cancelled.set()
        self._connects.stop()
        self._exchanges.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            queue, self._queue = self._queue, deque()
        for scan in queue:
            scan.future.set_exception(ScanFailed("the provider stops"))

    def join(self) -> None:
        """Wait for what runs, after `stop`."""
        self._connects.join()
        self._exchanges.shutdown(wait=True)
        with self._lock:
            for sock in self._connected:
                sock.close()
            self._connected.clear()

    def _next(self) -> None:
        while True:
            with self._lock:
                if self._active >= MAX_SCANS or not self._queue:
                    return
                scan = self._queue.popleft()
                self._active += 1
            scan.deadline = self._clock() + scan.timeout
            self._connect(scan)

    def _connect(self, scan: _Scan) -> None:
        if not _is_address(scan.host):
            # A name must be looked up, which may block: the key scan does it in its thread.
            self._submit(scan)
            return

        def answer(outcome: socket.socket | str) -> None:
            if isinstance(outcome, str):
                self._finish(scan, ScanFailed(f"{outcome} (gave up after {scan.timeout:g} s)"))
            elif scan.ssh:
                # The first key exchange uses it: a host need not serve a connection for nothing.
                with self._lock:
                    scan.connected = outcome
                    self._connected.add(outcome)
                self._submit(scan)
            else:
                outcome.close()
                self._finish(scan, ())

        self._connects.wait(scan.host, scan.port, max(0.0, scan.deadline - self._clock()), answer)

    def _submit(self, scan: _Scan) -> None:
        scan.submitted = self._clock()
        try:
            self._exchanges.submit(self._exchange, scan)
        except RuntimeError:
            self._finish(scan, ScanFailed("the provider stops"))

    def _exchange(self, scan: _Scan) -> None:
        # It has waited for one of our threads.
        scan.deadline += self._clock() - scan.submitted
        left = scan.deadline - self._clock()
        with self._lock:
            connected, scan.connected = scan.connected, None
            if connected is not None:
                self._connected.discard(connected)
        outcome: tuple[str, ...] | ScanFailed
        try:
            with Guard(log, "Error while scanning %s", scan.host, but=ScanFailed) as guard:
                outcome = keyscan.scan(
                    scan.host,
                    scan.port,
                    timeout=max(0.1, min(left, scan.slice_seconds)),
                    gather_keys=scan.ssh,
                    cancelled=self._cancelled,
                    connected=connected,
                ).host_keys
            if guard.error is not None:
                outcome = ScanFailed(f"{scan.host}: {type(guard.error).__name__}: {guard.error}")
            self._finish(scan, outcome)
        except ScanFailed as problem:
            if left > scan.slice_seconds and not self._cancelled.is_set():
                scan.slice_seconds *= 2
                self._connect(scan)
            else:
                self._finish(scan, problem)
        finally:
            # Does nothing if it was taken over.
            if connected is not None:
                connected.close()

    def _finish(self, scan: _Scan, outcome: tuple[str, ...] | ScanFailed) -> None:
        with self._lock:
            self._active -= 1
        if isinstance(outcome, ScanFailed):
            scan.future.set_exception(outcome)
        else:
            scan.future.set_result(outcome)
        self._next()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
