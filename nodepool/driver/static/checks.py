# SPDX-License-Identifier: Apache-2.0
"""What is known of static hosts: which of them answer, and which are out of service.

First the checks, in a bounded thread pool, one at a time for each host; then what they have shown; then the records of
operators; then the checks of ``nodepool check``.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeVar

from nodepool.clock import wall_time
from nodepool.driver.framework import keyscan
from nodepool.driver.framework.cloud_errors import CheckResult
from nodepool.driver.framework.keyscan import ScanFailed
from nodepool.guard import settle
from nodepool.model.event import short
from nodepool.model.node import Node
from nodepool.model.reasons import Reason
from nodepool.model.status import HostStatus, Maintenance, MaintenanceRecords, Mode
from nodepool.plan import static
from nodepool.plan.maintenance import next_end, of_host
from nodepool.zk.zookeeper import ZooKeeper

T = TypeVar("T")

log = logging.getLogger("nodepool.driver.static")

#: Checks at once in a provider (rule K-4).
MAX_THREADS: Final = 100


class HostKeysMissing(ScanFailed):
    """The host does not have the keys that are configured (S-3). Perhaps it is not the host that we want."""


def check_host(spec: static.HostSpec, cancelled: threading.Event | None = None) -> static.HostFacts:
    """Find out what a node of this host has to say. Blocks for at most the host's timeout plus the name look-up.

    :param cancelled: set = make no further attempt.
    :raises ScanFailed: the host cannot be used now.
    """
    name, _, port = spec.id
    if not spec.check:
        first = keyscan.first_of(keyscan.resolve(name, port))
        return static.HostFacts(static.unscanned_keys(spec), first.get(socket.AF_INET), first.get(socket.AF_INET6))
    found = keyscan.scan(
        name,
        port,
        timeout=spec.timeout_seconds,
        connection_type=spec.connection_type,
        # The provider comes back to a host that is down; a thread must not wait for it.
        retry_connect=False,
        cancelled=cancelled,
    )
    if spec.keys_wanted and (missing := static.missing_keys(spec, found.host_keys)):
        raise HostKeysMissing(f"{spec.id} does not have the configured host key(s): {', '.join(missing)}")
    return static.HostFacts(found.host_keys if spec.keys_wanted else (), found.public_ipv4, found.public_ipv6)


def is_alive(spec: static.HostSpec) -> bool:
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
        #: Hosts with a check that was asked for, or is under way; and the next one, for all who asked since it began.
        self._waiting: dict[static.HostId, tuple[static.HostSpec, Future[static.HostFacts]] | None] = {}
        self._cancelled = threading.Event()

    def check(self, spec: static.HostSpec) -> Future[static.HostFacts]:
        """Start `check_host`; does not block. After `stop` the future is cancelled."""
        with self._lock:
            submitted = spec.id in self._waiting
            known = self._waiting.get(spec.id)
            future: Future[static.HostFacts] = Future() if known is None else known[1]
            # Of the newest configuration.
            self._waiting[spec.id] = spec, future
        if not submitted:
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
            waiting, self._waiting = list(self._waiting.values()), {}
        for _, future in filter(None, waiting):
            future.cancel()

    def join(self) -> None:
        """Wait until the running checks have ended; after `stop`."""
        self._pool.shutdown(wait=True)

    def _submit(self, host: static.HostId) -> None:
        try:
            self._pool.submit(self._run, host)
        except RuntimeError:
            # Stopped in between.
            with self._lock:
                waiting = self._waiting.pop(host, None)
            if waiting is not None:
                waiting[1].cancel()

    def _run(self, host: static.HostId) -> None:
        """Do one check for all that wait for it."""
        with self._lock:
            waiting = self._waiting.get(host)
            if waiting is not None:
                self._waiting[host] = None
        if waiting is not None:
            spec, future = waiting
            if future.set_running_or_notify_cancel():
                settle([future], lambda: check_host(spec, self._cancelled))
        with self._lock:
            more = self._waiting.get(host) is not None
            if not more:
                self._waiting.pop(host, None)
        if more:
            self._submit(host)


# What the checks of each host have shown, and when it is checked again: those that are down delay no other.

_UNKNOWN: Final = static.HostHealth()


#: (pool, label) -> slots
_Slots = Mapping[tuple[str, str], static.LabelSlots]


class HostMonitor:
    """Written by the provider's thread; any thread may read, and nothing blocks.

    Logs what is wrong with a host when that changes, and as long as it stays less and less often.

    :param hosts: the configuration.
    """

    def __init__(self, hosts: Mapping[static.HostId, static.HostSpec], log: logging.Logger) -> None:
        self._hosts = hosts
        self.log = log
        self._health: dict[static.HostId, static.HostHealth] = {}
        #: When a host is checked again: by the clock of the provider, and in seconds since the epoch.
        self._next: dict[static.HostId, tuple[float, float]] = {}
        #: What the log has last of a host that is down, when that is logged again, and how often it was.
        self._told: dict[static.HostId, tuple[str, float, int]] = {}
        #: Hosts that are out of service, as of the provider's last pass. Replaced as a whole.
        self.held: Mapping[static.HostId, Maintenance] = {}
        #: Grows when a host goes or comes; and what `has_news` saw last.
        self._changes = self._told_changes = 0
        #: Slots by (pool, label), and what ``_changes`` was then. Replaced as a whole.
        self._slots: tuple[int, _Slots] = (-1, {})

    def health(self, host: static.HostId) -> static.HostHealth:
        """What its checks have shown. Any thread; does not block."""
        return self._health.get(host, _UNKNOWN)

    def due(self, host: static.HostId) -> float:
        """Time of the next check; 0 for a host without trouble."""
        return self._next.get(host, (0.0, 0.0))[0]

    def hold(self, held: Mapping[static.HostId, Maintenance]) -> None:
        """These hosts are out of service now."""
        if held != self.held:
            self.held = held
            self._changes += 1

    def failed(self, host: static.HostId, error: Exception, now: float) -> None:
        """Note that a host failed its check.

        :param now: of any clock that only goes forward, in seconds.
        """
        at = wall_time()
        text = str(error) or type(error).__name__
        health = self._set(host, static.after_failure(self.health(host), text, at, self._quarantine_after(host)))
        # Someone must change something; S-3.
        pause = (
            static.RETRY.longest_seconds if isinstance(error, HostKeysMissing) else static.RETRY.pause(health.failures)
        )
        self._next[host] = now + pause, at + pause
        self._tell(host, health, now, at)

    def quarantine_seconds(self, host: static.HostId) -> float | None:
        """For how long a host that failed is quarantined now; None = it is not (S-16)."""
        health = self.health(host)
        if not static.is_quarantined_by(health, self._quarantine_after(host)):
            return None
        checked = [each.up for each in self._health.values() if each.up is not None]
        if static.is_our_network(checked.count(False), len(checked)):
            return None
        return static.quarantine_pause(health, wall_time())

    def retry_now(self, host: static.HostId, *, forget: bool) -> None:
        """The quarantine of a host is over: it is checked at once.

        :param forget: an operator released it: its failures count anew.
        """
        self._next.pop(host, None)
        if forget:
            self._health[host] = replace(self.health(host), row=0, returns=0)

    def worked(self, host: static.HostId) -> None:
        """Note that a host passed its check."""
        before = self.health(host)
        health = self._set(host, static.after_success(before, wall_time()))
        self._next.pop(host, None)
        self._told.pop(host, None)
        if before.up is False:
            seconds = short(health.since - before.since)
            self.log.info(
                "Static host %s works again after %d failed check(s); it was down for %s",
                host,
                before.failures,
                seconds,
            )

    def _quarantine_after(self, host: static.HostId) -> int:
        spec = self._hosts.get(host)
        return 0 if spec is None else spec.quarantine_after

    def _set(self, host: static.HostId, health: static.HostHealth) -> static.HostHealth:
        if health.up != self.health(host).up:
            self._changes += 1
        self._health[host] = health
        return health

    def _tell(self, host: static.HostId, health: static.HostHealth, now: float, at: float) -> None:
        text, again, times = self._told.get(host, ("", 0.0, 0))
        if text != health.text or not times:
            self._told[host] = health.text, now + static.TELL_AGAIN.pause(1), 1
            self.log.warning(
                "Static host %s is not registered: %s. It is tried again, at the latest every %g s",
                *(host, health.text, static.RETRY.longest_seconds),
            )
        elif now >= again:
            self._told[host] = text, now + static.TELL_AGAIN.pause(times + 1), times + 1
            self.log.warning(
                "Static host %s is still down, for %s now, after %d failed checks: %s",
                *(host, short(at - health.since), health.failures, health.text),
            )

    # -- what the provider reports of its hosts, to commands and to requests that wait for one --

    def statuses(self, nodes_in: Callable[[static.SlotId], Sequence[Node]]) -> list[HostStatus]:
        """Every host, in the order of the configuration.

        :param nodes_in: the nodes of a slot, as far as they are known.
        """
        return [self._status(spec, nodes_in) for spec in self._hosts.values()]

    def _status(self, spec: static.HostSpec, nodes_in: Callable[[static.SlotId], Sequence[Node]]) -> HostStatus:
        health, record = self.health(spec.id), self.held.get(spec.id)
        nodes = [node.key for slot in range(spec.slots) for node in nodes_in(static.SlotId(spec.id, slot))]
        _, next_check = self._next.get(spec.id, (0.0, None))
        return HostStatus(
            name=str(spec.id),
            up=health.up,
            text=health.text,
            since=health.since if record is None else record.since,
            next=next_check if record is None else record.until,
            quarantine=None if record is None else cause(record),
            slots=spec.slots,
            nodes=nodes,
            pool=spec.pool,
            labels=spec.labels,
        )

    def has_news(self) -> bool:
        """Did a host go or come since the call before? Only for the provider's thread."""
        seen, self._told_changes = self._told_changes, self._changes
        return seen != self._changes

    def wait_reason(self, pool_name: str, labels: Sequence[str], free: Mapping[str, int]) -> Reason:
        """What a request waits for, see `Provider.waitReason`."""
        slots = self._label_slots()
        mine = {label: slots[pool_name, label] for label in labels if (pool_name, label) in slots}
        return static.waits_for(labels, mine, free)

    def _label_slots(self) -> _Slots:
        """The slots of each label of each pool; worked out again when a host went or came."""
        # Read first: what changes meanwhile is seen by the next call.
        changes = self._changes
        if self._slots[0] != changes:
            self._slots = changes, self._count(self.held)
        return self._slots[1]

    def _count(self, held: Mapping[static.HostId, Maintenance]) -> _Slots:
        counted: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
        for spec in self._hosts.values():
            up = self.health(spec.id).up
            how = static.ASIDE if spec.id in held else static.UNCHECKED if up is None else "" if up else static.DOWN
            for label in spec.labels:
                counted.setdefault((spec.pool, label), {}).setdefault(how, {})[str(spec.id)] = spec.slots
        return counted


# Which hosts are taken out of service, by an operator or because they fail? (rules S-16, S-17)

_NONE: Final[Mapping[static.HostId, Maintenance]] = MappingProxyType({})


def cause(record: Maintenance) -> str:
    """Who quarantined a host and why, for an operator."""
    return ": ".join(part for part in (record.by, record.reason) if part) or "no reason was given"


class Quarantines:
    """The maintenance records of a provider's hosts. Any thread may ask; only `quarantine` blocks.

    Without a cache, in a command, none is known: the launchers put a quarantined host's node on hold.
    """

    def __init__(self, zk: ZooKeeper, hosts: Mapping[static.HostId, static.HostSpec]) -> None:
        self._zk = zk
        self._hosts = hosts
        self._read = False
        #: Who writes the records of this launcher.
        self.by = f"launcher {socket.gethostname()}"

    def of(self, host: static.HostId) -> Maintenance | None:
        """Why a host is out of service now; None = it is not."""
        records = self._records()
        return of_host(records, *host, wall_time()) if records else None

    def held(self) -> Mapping[static.HostId, Maintenance]:
        """All hosts that are out of service now."""
        records, now = self._records(), wall_time()
        if not any(kind == "host" for kind, _ in records):
            return _NONE
        return {host: record for host in self._hosts if (record := of_host(records, *host, now)) is not None}

    def seconds_to_next_end(self) -> float:
        """Until the next record ends by itself; infinite = none does."""
        now = wall_time()
        end = next_end(self._records(), now)
        return math.inf if end is None else max(0.0, end - now)

    def surely_over(self, hosts: Collection[static.HostId]) -> set[static.HostId]:
        """Those of some hosts that ZooKeeper has no record of. Blocks for round trips.

        The cache may learn of a node on hold before it has read the record that the node is on hold for.

        :raises ZKException: it could not be asked.
        """
        records, now = self._zk.maintenance.read_all(), wall_time()
        return {host for host in hosts if of_host(records, *host, now) is None}

    @property
    def known(self) -> bool:
        """Have the records been read? Before that nodes on hold would be taken for those of released hosts."""
        cache = self._zk.cache
        self._read = self._read or cache is None or cache.maintenance.ready.is_set()
        return self._read

    def quarantine(self, host: static.HostId, reason: str, seconds: float, *, since: float | None = None) -> bool:
        """Take a host that fails out of service for a time, for all launchers. Blocks for round trips.

        :param since: when it was quarantined first, in seconds since the epoch; None = now.
        :return: False = an operator has quarantined it.
        :raises ZKException: it is not done.
        """
        now = wall_time()
        record = Maintenance("host", str(host), Mode.QUARANTINE, reason, self.by, since or now, now + seconds, True)
        return self._zk.maintenance.put_automatic(record, now)

    def _records(self) -> MaintenanceRecords:
        cache = self._zk.cache
        return cache.maintenance.snapshot() if cache is not None else {}


# What ``nodepool check`` finds out about static hosts: name, port and host keys of each, many at a time.

#: Longest time that all hosts together are given, in seconds.
LIMIT_SECONDS: Final = 60.0


def host_checks(name: str, hosts: Collection[static.HostSpec], limit: float = LIMIT_SECONDS) -> Iterator[CheckResult]:
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


def _preflight_result(spec: static.HostSpec, future: Future[static.HostFacts], limit: float) -> CheckResult:
    subject = f"host {spec.id}"
    if not future.done() or future.cancelled():
        return CheckResult(subject, False, f"not looked at within {limit:g} s", "check fewer providers at a time")
    try:
        facts = future.result()
    except HostKeysMissing as error:
        return CheckResult(
            subject, False, str(error), "correct host-key; if its keys were not changed, it is another host"
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
