# SPDX-License-Identifier: Apache-2.0
"""Checks of static hosts, in a bounded thread pool, one at a time for each host; then those of ``nodepool check``."""

from __future__ import annotations

import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

from nodepool.driver.framework import keyscan
from nodepool.driver.framework.cloud_errors import CheckResult
from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.guard import settle
from nodepool.plan.static import HostFacts, HostId, HostSpec, missing_keys, unscanned_keys

T = TypeVar("T")

log = logging.getLogger("nodepool.driver.static")

#: Checks at once in a provider (rule K-4).
MAX_THREADS: Final = 100


class HostKeysMissing(ScanFailed):
    """The host does not have the keys that are configured (S-3). Perhaps it is not the host that we want."""


def check_host(spec: HostSpec, cancelled: threading.Event | None = None) -> HostFacts:
    """Find out what a node of this host has to say. Blocks for at most the host's timeout plus the name look-up.

    :param cancelled: set = make no further attempt.
    :raises ScanFailed: the host cannot be used now.
    """
    name, _, port = spec.id
    if not spec.check:
        first = keyscan.first_of(keyscan.resolve(name, port))
        return HostFacts(unscanned_keys(spec), first.get(socket.AF_INET), first.get(socket.AF_INET6))
    found = keyscan.scan(
        name,
        port,
        timeout=spec.timeout_seconds,
        connection_type=spec.connection_type,
        # The provider comes back to a host that is down; a thread must not wait for it.
        retry_connect=False,
        cancelled=cancelled,
    )
    if spec.keys_wanted and (missing := missing_keys(spec, found.host_keys)):
        raise HostKeysMissing(f"{spec.id} does not have the configured host key(s): {', '.join(missing)}")
    return HostFacts(found.host_keys if spec.keys_wanted else (), found.public_ipv4, found.public_ipv6)


def is_alive(spec: HostSpec) -> bool:
    """Does the host accept a TCP connection (S-9)? Blocks for at most the host's timeout."""
    name, _, port = spec.id
    try:
        keyscan.scan(name, port, timeout=spec.timeout_seconds, gather_keys=False, retry_connect=False)
    except ScanFailed:
        return False
    return True


def _result(done: Future[T], otherwise: T) -> T:
    if done.cancelled():
        return otherwise
    error = done.exception()
    if error is not None:
        log.error("Background work failed", exc_info=error)
        return otherwise
    return done.result()


class HostChecker:
    """Runs checks in the background.

    A full check opens a connection for each key type, and an sshd drops connections when many are open that
    have not logged in. So a host has one full check at a time, and checks that were asked for while another
    one was under way are done as one: its result is newer than each of the questions.

    ``_lock`` guards ``_waiting``; it is not held across I/O.

    :param name: for the names of the threads.
    :param threads: checks at once.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._pool = ThreadPoolExecutor(max(1, min(threads, MAX_THREADS)), thread_name_prefix=f"{name}-check")
        self._lock = threading.Lock()
        self._waiting: dict[HostId, deque[tuple[HostSpec, Future[HostFacts]]]] = {}
        self._cancelled = threading.Event()

    def check(self, spec: HostSpec) -> Future[HostFacts]:
        """Start `check_host`; does not block. After `stop` the future is cancelled."""
        future: Future[HostFacts] = Future()
        with self._lock:
            queue = self._waiting.get(spec.id)
            if queue is not None:
                queue.append((spec, future))
                return future
            self._waiting[spec.id] = deque([(spec, future)])
        self._submit(spec.id)
        return future

    def submit(self, work: Callable[[], T], otherwise: T) -> Future[T]:
        """Run something short in a pool thread; does not block.

        :param otherwise: the result if it raises (logged), or if the checker is stopped first.
        """
        outcome: Future[T] = Future()
        try:
            task = self._pool.submit(work)
        except RuntimeError:
            outcome.set_result(otherwise)
            return outcome
        task.add_done_callback(lambda done: outcome.set_result(_result(done, otherwise)))
        return outcome

    def stop(self) -> None:
        """Start nothing more; what runs ends within the hosts' timeouts. Does not block."""
        self._cancelled.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            queues, self._waiting = list(self._waiting.values()), {}
        for _, future in [entry for queue in queues for entry in queue]:
            future.cancel()

    def join(self) -> None:
        """Wait until the running checks have ended; after `stop`."""
        self._pool.shutdown(wait=True)

    def _submit(self, host: HostId) -> None:
        try:
            self._pool.submit(self._run, host)
        except RuntimeError:
            # Stopped in between.
            with self._lock:
                queue = self._waiting.pop(host, None)
            for _, future in queue or ():
                future.cancel()

    def _take(self, host: HostId) -> list[tuple[HostSpec, Future[HostFacts]]]:
        """All that wait for one check of the newest configuration; the host stays marked as being checked."""
        with self._lock:
            queue = self._waiting.get(host)
            entries = list(queue) if queue is not None else []
            if queue is not None:
                queue.clear()
        return [entry for entry in entries if entry[1].set_running_or_notify_cancel()]

    def _run(self, host: HostId) -> None:
        """Do one check for all that wait for it."""
        entries = self._take(host)
        if entries:
            settle([future for _, future in entries], lambda: check_host(entries[-1][0], self._cancelled))
        with self._lock:
            more = bool(self._waiting.get(host))
            if not more:
                self._waiting.pop(host, None)
        if more:
            self._submit(host)


# What ``nodepool check`` finds out about static hosts: name, port and host keys of each, many at a time.

#: Longest time that all hosts together are given, in seconds.
LIMIT_SECONDS: Final = 60.0


def host_checks(name: str, hosts: Collection[HostSpec], limit: float = LIMIT_SECONDS) -> Iterator[CheckResult]:
    """One result for each host. Blocks until all have answered, or their timeouts are over.

    :param name: of the provider.
    :param limit: seconds after which hosts that were not looked at yet are left out.
    """
    checker = HostChecker(f"Check-{name}", len(hosts))
    found = {spec.id: (spec, checker.check(spec)) for spec in hosts}
    try:
        wait([future for _, future in found.values()], limit)
    finally:
        checker.stop()
    for spec, future in found.values():
        yield _preflight_result(spec, future, limit)


def _preflight_result(spec: HostSpec, future: Future[HostFacts], limit: float) -> CheckResult:
    subject = f"host {spec.id}"
    if not future.done() or future.cancelled():
        return CheckResult(subject, False, f"not looked at within {limit:g} s", "check fewer providers at a time")
    try:
        facts = future.result()
    except HostKeysMissing as error:
        return CheckResult(
            subject, False, str(error), "correct host-key; if nobody has changed the host, it is another one"
        )
    except ScanFailed as error:
        known = not str(error).startswith("cannot resolve")
        remedy = "start it, or correct name and connection-port" if known else "correct name, or the name service"
        return CheckResult(subject, False, str(error) or type(error).__name__, remedy)
    if not spec.check:
        return CheckResult(subject, True, "its name is known; it is not contacted (host-key-checking: false)")
    return CheckResult(
        subject, True, f"answers with {len(facts.host_keys)} host keys" if facts.host_keys else "answers"
    )
