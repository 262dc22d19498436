# SPDX-License-Identifier: Apache-2.0
"""Connection checks of new nodes (rules K).

Hundreds of hosts can wait for their TCP connections in one thread, which has an event loop. Key exchanges cost
processor time: a few threads make them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import threading
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import dataclass, field
from typing import Final

from nodepool.clock import monotonic
from nodepool.driver.framework import keyscan
from nodepool.driver.framework.keyscan import SSH_CONNECTION_TYPES, ScanFailed
from nodepool.guard import Guard, OnError
from nodepool.plan.retries import Backoff

log = logging.getLogger("nodepool.driver.statemachine.Scans")

#: Hosts that are checked at once; others queue (K-4).
MAX_SCANS: Final = 100
#: Key exchanges at once.
EXCHANGE_THREADS: Final = 8
#: A host that accepts connections but does not negotiate gets its thread for this long, then others have their turn.
SLICE_SECONDS: Final = 10.0
#: Longest time for one attempt to connect (K-3).
ATTEMPT_SECONDS: Final = 10.0
#: From an attempt that failed to the next one. An attempt costs next to nothing.
RETRY: Final = Backoff(0.1, 0.5)


@dataclass
class _Scan:
    """One host. ``left``: seconds that there were when the latest key exchange began."""

    host: str
    port: int
    timeout: float
    ssh: bool
    deadline: float = 0.0
    left: float = 0.0
    slice_seconds: float = field(default_factory=lambda: SLICE_SECONDS)


class Scans:
    """All checks of one provider.

    The time of a host begins with its check, not while it waits for its turn. ``_lock`` guards the loop and its thread,
    which begins with the first host. All else belongs to that thread.

    :param name: for the name of the thread.
    :param executor: runs the key exchanges; it is shut down at the end.
    """

    def __init__(self, name: str, executor: Executor) -> None:
        self._name = name
        self._exchanges = executor
        self._turns = asyncio.Semaphore(MAX_SCANS)
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def scan(self, host: str, port: int, timeout: float, connection_type: str | None) -> Future[tuple[str, ...]]:
        """Begin a check; does not block. The result is the host keys; it raises ScanFailed.

        :param timeout: ``boot-timeout``, seconds.
        :param connection_type: of the node; only for those that speak SSH are keys collected (K-2).
        :raises OSError, RuntimeError: the system is short of something.
        """
        with self._lock:
            if self._stopped.is_set():
                ended: Future[tuple[str, ...]] = Future()
                ended.set_exception(ScanFailed("the provider stops"))
                return ended
            scan = _Scan(host, port, timeout, (connection_type or "ssh") in SSH_CONNECTION_TYPES)
            loop = self._running_loop()
            return asyncio.run_coroutine_threadsafe(self._check(scan), loop)

    def stop(self) -> None:
        """Give all up; what runs ends soon. Does not block."""
        self._stopped.set()
        self._exchanges.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self) -> None:
        """Wait for what runs, after `stop`."""
        if self._thread is not None:
            self._thread.join()
        self._exchanges.shutdown(wait=True)

    # -- the thread --

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Called with the lock."""
        if self._loop is None:
            loop = asyncio.SelectorEventLoop()
            with OnError(lambda _: loop.close()):
                thread = threading.Thread(target=self._run, args=(loop,), name=f"{self._name}-connect", daemon=True)
                thread.start()
            self._loop, self._thread = loop, thread
        return self._loop

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.closing(loop):
            loop.run_forever()
            loop.run_until_complete(self._end())

    async def _end(self) -> None:
        # What was submitted just now begins: it says then why it ends.
        await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- one host --

    async def _check(self, scan: _Scan) -> tuple[str, ...]:
        try:
            async with self._turns:
                scan.deadline = monotonic() + scan.timeout
                while True:
                    try:
                        return await self._attempt(scan)
                    except ScanFailed:
                        if scan.left <= scan.slice_seconds or self._stopped.is_set():
                            raise
                        scan.slice_seconds *= 2
        except (asyncio.CancelledError, CancelledError):
            raise ScanFailed("the provider stops") from None

    async def _attempt(self, scan: _Scan) -> tuple[str, ...]:
        # A name must be looked up, which may block: the key scan does it in its thread.
        connected = await _connect(scan) if _is_address(scan.host) else None
        try:
            if connected is not None and not scan.ssh:
                return ()
            loop, submitted = asyncio.get_running_loop(), monotonic()
            try:
                exchange = loop.run_in_executor(self._exchanges, self._exchange, scan, submitted, connected)
            except RuntimeError as error:
                # The executor was shut down, or the system has no more threads.
                raise ScanFailed("the provider stops" if self._stopped.is_set() else str(error)) from None
            return await exchange
        finally:
            # Does nothing to a connection that the key scan has taken over.
            if connected is not None:
                connected.close()

    def _exchange(self, scan: _Scan, submitted: float, connected: socket.socket | None) -> tuple[str, ...]:
        """In a thread of the executor."""
        # It has waited for one of our threads.
        scan.deadline += monotonic() - submitted
        scan.left = scan.deadline - monotonic()
        # An error that was not foreseen is one of this host: it must not end the loop, nor count against the cloud.
        with Guard(log, "Error while scanning %s", scan.host, but=ScanFailed) as guard:
            return keyscan.scan(
                scan.host,
                scan.port,
                timeout=max(0.1, min(scan.left, scan.slice_seconds)),
                gather_keys=scan.ssh,
                cancelled=self._stopped,
                connected=connected,
            ).host_keys
        # Another slice of time would not help.
        scan.left = 0.0
        raise ScanFailed(f"{scan.host}: {type(guard.error).__name__}: {guard.error}")


async def _connect(scan: _Scan) -> socket.socket:
    """Try to connect to an address until it works; the connection is the caller's to close.

    :raises ScanFailed: time is up.
    """
    loop, host, reason = asyncio.get_running_loop(), scan.host, "no time left"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    failures = 0
    while (left := scan.deadline - monotonic()) > 0:
        try:
            # Descriptors may be short for a moment: that is an attempt like others.
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            with OnError(lambda _, sock=sock: sock.close()):  # type: ignore[misc]
                async with asyncio.timeout(min(left, ATTEMPT_SECONDS)):
                    await loop.sock_connect(sock, (host, scan.port))
            return sock
        except TimeoutError:
            reason = "no answer"
        except (OSError, OverflowError) as error:
            errno = getattr(error, "errno", None)
            reason = os.strerror(errno) if errno and errno > 0 else str(error)
        failures += 1
        await asyncio.sleep(max(0.0, min(RETRY.pause(failures), scan.deadline - monotonic())))
    where = f"[{host}]:{scan.port}" if ":" in host else f"{host}:{scan.port}"
    scan.left = 0.0
    raise ScanFailed(f"cannot connect to {where}: {reason} (gave up after {scan.timeout:g} s)")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
