# SPDX-License-Identifier: Apache-2.0
"""Connection checks of new nodes (rules K).

Hundreds of hosts can wait in one thread. A limited number is scanned at a time. First the scans, then waiting for TCP
connections.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import ipaddress
import itertools
import logging
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.framework import keyscan
from nodepool.driver.framework.keyscan import SSH_CONNECTION_TYPES, ScanFailed
from nodepool.guard import Guard
from nodepool.plan.retries import Backoff

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


# Waits until hosts accept TCP connections: many at once, in one thread (rule K-3).

connects_log = logging.getLogger("nodepool.driver.statemachine.ConnectWaiter")

#: Longest time for one attempt (K-3).
ATTEMPT_SECONDS: Final = 10.0
#: From an attempt that failed to the next one. An attempt costs next to nothing.
RETRY: Final = Backoff(0.1, 0.5)

#: Called in the thread of the waiter: with the connection, which is the called one's to close, or with the reason why
#: there was none in time. Must not block.
Answer = Callable[[socket.socket | str], None]


class _Wait:
    """One host that is waited for."""

    def __init__(self, host: str, port: int, deadline: float, answer: Answer) -> None:
        self.host = host
        self.port = port
        self.deadline = deadline
        self.answer = answer
        self.failures = 0
        self.reason = "no time left"
        self.sock: socket.socket | None = None
        #: Tells which timer is still of interest.
        self.turn = 0

    @property
    def where(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class ConnectWaiter:
    """Tries to connect to each host until it works or its time is up.

    ``_lock`` guards ``_new``, ``_stopping`` and the pipe; all else belongs to the thread, which is started with the
    first host.

    :param name: of the thread.
    """

    def __init__(self, name: str, clock: Callable[[], float] = monotonic) -> None:
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._new: deque[_Wait] = deque()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._selector: selectors.BaseSelector
        self._wake_read = self._wake_write = -1
        self._timers: list[tuple[float, int, _Wait, int]] = []
        self._order = itertools.count()
        self._waiting: set[_Wait] = set()

    def wait(self, host: str, port: int, timeout: float, answer: Answer) -> None:
        """Begin to wait for a host; does not block.

        :param host: IPv4 or IPv6 address, not a name: names would have to be looked up.
        :param timeout: seconds in all.
        """
        wait = _Wait(host, port, self._clock() + timeout, answer)
        with self._lock:
            late = self._stopping
            if not late:
                if self._thread is None:
                    self._start()
                self._new.append(wait)
                self._wake()
        if late:
            answer("the provider stops")

    def _start(self) -> None:
        """Raises OSError or RuntimeError, and the next call tries again: the system may be short of something."""
        with ExitStack() as undo:
            selector = undo.enter_context(selectors.DefaultSelector())
            read, write = os.pipe()
            for end in (read, write):
                undo.callback(os.close, end)
                os.set_blocking(end, False)
            selector.register(read, selectors.EVENT_READ)
            self._selector, self._wake_read, self._wake_write = selector, read, write
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread
            undo.pop_all()

    def stop(self) -> None:
        """Give all up. Does not block."""
        with self._lock:
            self._stopping = True
            if self._thread is not None:
                self._wake()

    def join(self) -> None:
        """Wait for the thread, after `stop`."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _wake(self) -> None:
        # A pipe that is full will wake it, too.
        if self._wake_write >= 0:
            with contextlib.suppress(BlockingIOError):
                os.write(self._wake_write, b"x")

    # -- the thread --

    def _run(self) -> None:
        with self._selector:
            while self._guarded_turn():
                continue
        with self._lock:
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._wake_write = -1

    def _guarded_turn(self) -> bool:
        """`_turn`; whatever happens there, nobody waits for ever, and the thread goes on."""
        with Guard(connects_log, "%s: an error, all hosts that are waited for are given up", self._name):
            return self._turn()
        self._timers.clear()
        for wait in list(self._waiting):
            self._finish(wait, "an error of the launcher, see its log")
        return True

    def _turn(self) -> bool:
        """Handle what happened since the last turn; False = the end."""
        with self._lock:
            new, self._new = self._new, deque()
            stopping = self._stopping
        self._waiting.update(new)
        if stopping:
            for wait in list(self._waiting):
                self._finish(wait, "the provider stops")
            return False
        for wait in new:
            self._attempt(wait)
        timeout = max(0.0, self._timers[0][0] - self._clock()) if self._timers else None
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                os.read(self._wake_read, 4096)
            else:
                self._answered(key.data)
        self._check_timers()
        return True

    def _timer(self, wait: _Wait, when: float) -> None:
        wait.turn += 1
        heapq.heappush(self._timers, (when, next(self._order), wait, wait.turn))

    def _attempt(self, wait: _Wait) -> None:
        now = self._clock()
        if now >= wait.deadline:
            self._finish(wait, f"cannot connect to {wait.where}: {wait.reason}")
            return
        family = socket.AF_INET6 if ":" in wait.host else socket.AF_INET
        try:
            wait.sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            code = wait.sock.connect_ex((wait.host, wait.port))
        except (OSError, OverflowError) as error:
            self._failed(wait, getattr(error, "strerror", None) or str(error))
            return
        if code == 0:
            self._connected(wait)
        elif code == errno.EINPROGRESS:
            self._selector.register(wait.sock, selectors.EVENT_WRITE, wait)
            self._timer(wait, min(now + ATTEMPT_SECONDS, wait.deadline))
        else:
            self._failed(wait, os.strerror(code))

    def _answered(self, wait: _Wait) -> None:
        assert wait.sock is not None
        code = wait.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0:
            self._connected(wait)
        else:
            self._failed(wait, os.strerror(code))

    def _failed(self, wait: _Wait, reason: str) -> None:
        self._close(wait)
        wait.reason = reason
        wait.failures += 1
        self._timer(wait, min(self._clock() + RETRY.pause(wait.failures), wait.deadline))

    def _check_timers(self) -> None:
        now = self._clock()
        while self._timers and self._timers[0][0] <= now:
            _, _, wait, turn = heapq.heappop(self._timers)
            if turn != wait.turn:
                continue
            if wait.sock is not None:
                self._close(wait)
                wait.reason = "no answer"
            self._attempt(wait)

    def _connected(self, wait: _Wait) -> None:
        sock = wait.sock
        assert sock is not None
        self._unregister(sock)
        wait.sock = None
        self._finish(wait, sock)

    def _finish(self, wait: _Wait, outcome: socket.socket | str) -> None:
        self._close(wait)
        wait.turn += 1
        self._waiting.discard(wait)
        with Guard(connects_log, "%s: error in a callback", self._name):
            wait.answer(outcome)

    def _close(self, wait: _Wait) -> None:
        if wait.sock is None:
            return
        self._unregister(wait.sock)
        wait.sock.close()
        wait.sock = None

    def _unregister(self, sock: socket.socket) -> None:
        # One that was connected at once was never registered.
        with contextlib.suppress(KeyError):
            self._selector.unregister(sock)
