# SPDX-License-Identifier: Apache-2.0
"""Waits until hosts accept TCP connections: many at once, in one thread (rule K-3)."""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import logging
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from nodepool.clock import monotonic
from nodepool.guard import Guard
from nodepool.plan.backoff import Backoff

log = logging.getLogger("nodepool.driver.statemachine.ConnectWaiter")

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
        with Guard(log, "%s: an error, all hosts that are waited for are given up", self._name):
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
        with Guard(log, "%s: error in a callback", self._name):
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
