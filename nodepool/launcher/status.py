# SPDX-License-Identifier: Apache-2.0
"""What a launcher publishes about itself (rules W; reference/metrics 1, 2, 5).

First the thread that publishes status records (`StatusWorker`), then what a pool reports (`PoolStatusMaker`), and how
much of it is stored. Last the gauges (`StatsWorker`).
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from nodepool import log_names
from nodepool.clock import monotonic, wall_time
from nodepool.driver import gateway
from nodepool.exceptions import ZKConnectionError
from nodepool.guard import Guard
from nodepool.metrics import reports
from nodepool.model import states
from nodepool.model.event import Event, clipped
from nodepool.model.record import as_json
from nodepool.model.status import (
    HostStatus,
    LabelStatus,
    LauncherStatus,
    LaunchStatus,
    LimitStatus,
    Maintenance,
    PauseStatus,
    PoolStatus,
    RequestStatus,
    WaitingStatus,
)
from nodepool.plan import attention, maintenance
from nodepool.plan.triage import Stage
from nodepool.runtime.worker import REPORT_SECONDS, PassThread, StatusThread
from nodepool.version import release_string
from nodepool.zk.status import LAUNCHER, POOL
from nodepool.zk.transactions import Election

if TYPE_CHECKING:
    from nodepool.driver.interface import Provider
    from nodepool.launcher.pool.desk import Explanation, Snapshot
    from nodepool.launcher.pool.view import Launcher, Pool
    from nodepool.metrics.registry import Registry, StatsdClient


class StatusWorker(StatusThread):
    """A thread that owns all of its state; `changed` and `stop` may be called from any other.

    :param status: makes the status of the launcher.
    """

    def __init__(self, launcher: Launcher, status: Callable[[], LauncherStatus]) -> None:
        super().__init__(launcher.client, launcher.log)
        self._launcher, self._status = launcher, status
        self._changed: set[str] = set()
        #: When all pools were looked at, and in which session: limits and launches change without a pass of theirs.
        self._all_at = -math.inf
        self._epoch = -1
        self._makers: dict[str, PoolStatusMaker] = {}

    def changed(self, pool_id: str = "") -> None:
        """A pool has made a pass; '' = there is an event. Cheap, does not block."""
        self._changed.add(pool_id)
        self.wake()

    def run_once(self) -> None:
        """Look at the pools that made a pass, or at all of them, and publish what changed."""
        now, epoch = monotonic(), self._client.session_epoch
        look_at_all = now >= self._all_at + REPORT_SECONDS or epoch != self._epoch
        if look_at_all:
            self._all_at, self._epoch = now, epoch
        # As many as there are now; each operation is atomic, and others add meanwhile.
        changed = {self._changed.pop() for _ in range(len(self._changed))}
        pools = {pool.launcher_id: pool for pool in self._launcher.all_pools()}
        for pool_id, pool in pools.items():
            if look_at_all or pool_id in changed or pool_id not in self._makers:
                maker = self._makers.setdefault(pool_id, PoolStatusMaker(pool))
                with Guard(self.log, "Status of pool %s could not be published", pool_id, but=ZKConnectionError):
                    self._publish(pool_id, maker)
        for pool_id in [known for known in self._makers if known not in pools]:
            self.writer.remove(POOL, pool_id)
            del self._makers[pool_id]
        status = self._status()
        self.writer.set(LAUNCHER, f"{status.host}-{status.pid}", status)

    def _publish(self, pool_id: str, maker: PoolStatusMaker) -> None:
        now, before = wall_time(), maker.last
        status = maker.make(now)
        if status != before:
            for event in attention.pool_events(before, status, now):
                self._launcher.events.put(event)
        self.writer.set(POOL, pool_id, status)


#: Most bytes of JSON of the events in the record.
EVENT_BYTES: Final = 48 * 1024


def newest(events: Sequence[Event]) -> tuple[Sequence[Event], int]:
    """The newest events that fit in a record, and how many are left out."""
    room = EVENT_BYTES
    for count, event in enumerate(reversed(events)):
        room -= len(as_json(event)) + 1
        if room < 0:
            return events[len(events) - count :], len(events) - count
    return events, 0


# What a pool reports about itself to commands and pages (rules W).

#: Declined requests that are reported: the last ones.
MAX_DECLINED: Final = 100
#: Requests that are reported one by one: those that are where they are for longest.
MAX_REQUESTS: Final = 200
#: Launches in progress that are listed one by one: those that began first.
MAX_LAUNCHES: Final = 100
#: Kinds of waiting requests that are reported: those that are known for longest.
MAX_KINDS: Final = 200
#: A provider is asked for its hosts again after so many seconds for each of them: thousands take their time.
HOST_SECONDS: Final = 0.05
#: At the latest after so many.
MAX_HOST_SECONDS: Final = 10.0


class PoolStatusMaker:
    """For one thread, that of the status worker. Nothing blocks, and nothing asks ZooKeeper or a cloud."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        #: Hosts of the pool, and when the provider reported them.
        self._hosts_told: Sequence[HostStatus] = ()
        self._hosts_at = 0.0
        #: What was made last; None = nothing was.
        self.last: PoolStatus | None = None

    def make(self, now: float) -> PoolStatus:
        """The status of now. Equal to the one before if nothing changed, however much later it is made.

        :param now: seconds since the epoch.
        """
        pool = self._pool
        made = self.last or PoolStatus(
            id=pool.launcher_id,
            host=socket.gethostname(),
            version=release_string(),
            provider=pool.provider_name,
            pool=pool.pool_name,
            since=now,
        )
        if pool.has_provider:
            made = bounded(self._look(made, pool.provider, now))
        self.last = made
        return made

    def _look(self, before: PoolStatus, provider: Provider, now: float) -> PoolStatus:
        pool = self._pool
        snapshot = pool.desk.snapshot()
        slow_calls = gateway.slow_calls(pool.provider_name, attention.SLOW_CALL_SECONDS)
        state, cause = _state(provider, snapshot, pool.hold)
        hosts = self._hosts(provider, now)
        same = (state, cause.code or None) == (before.state, before.code)
        return replace(
            before,
            driver=getattr(pool.config.driver, "name", "") or "",
            state=state,
            since=cause.since or (before.since if same else now),
            code=cause.code or None,
            text=cause.text or None,
            next=cause.next,
            limits=[*self._limits(provider, snapshot), *self._slots(hosts)],
            labels=self._labels(before, provider, now),
            waiting=self._waiting(before, snapshot, now),
            requests=[_request(told) for told in sorted(snapshot.requests, key=attrgetter("since"))[:MAX_REQUESTS]],
            declined=[_request(told) for told in snapshot.declined[-MAX_DECLINED:]],
            launches=pool.launch_log.status(pool.launches()),
            launching=self._launching(now),
            consoles=pool.launch_log.consoles(),
            hosts=hosts,
            # Rounded down, so that a call that has not ended changes the record now and then only.
            slow_calls={hook: attention.rounded(seconds) for hook, seconds in slow_calls.items()},
            failing_calls={
                hook: clipped(error)
                for hook, error in gateway.failing_calls(pool.provider_name, attention.FAILING_CALLS).items()
            },
            missing=dict(sorted(gateway.missing_instances(provider).items())),
            other_installations=dict(sorted(gateway.other_installations(provider).items())),
            omitted=max(0, len(snapshot.requests) - MAX_REQUESTS) + max(0, len(snapshot.kinds) - MAX_KINDS),
        )

    def _limits(self, provider: Provider, snapshot: Snapshot) -> Sequence[LimitStatus]:
        found = list(gateway.limit_status(provider, self._pool.pool_name))
        limit = self._pool.max_concurrency
        if limit >= 0:
            found.append(LimitStatus("provider", "launches", limit, self._pool.launches_running()))
        configured = self._pool.tenant_limits()
        # Of others no one here waits for anything.
        waiting = {kind.tenant_name or "" for kind, _, _ in snapshot.kinds}
        for tenant in sorted(waiting & configured.keys()):
            used = self._pool.launcher.known_tenant_use(tenant)
            for resource, amount in sorted(configured[tenant].items()):
                found.append(LimitStatus(f"tenant:{tenant}", resource, amount, used.quota["compute"].get(resource, 0)))
        return found

    def _launching(self, now: float) -> Sequence[LaunchStatus]:
        found = []
        launching = [step for handler in self._pool.desk.handlers() for step in handler.launch_steps()]
        for launch in sorted(launching, key=lambda launch: launch.begun)[:MAX_LAUNCHES]:
            if now - launch.begun >= attention.REPORTED_SECONDS:
                known = replace(launch, usual=self._pool.launch_log.usual(launch.label))
                found.append(replace(known, slow=attention.is_slow(known, now)))
        return found

    def _hosts(self, provider: Provider, now: float) -> Sequence[HostStatus]:
        """The hosts of this pool; those with trouble come first, because the others may be cut."""
        if not 0 <= now - self._hosts_at < min(len(self._hosts_told) * HOST_SECONDS, MAX_HOST_SECONDS):
            found = [host for host in gateway.host_status(provider) if host.pool in ("", self._pool.pool_name)]
            self._hosts_at = now
            self._hosts_told = sorted(found, key=lambda host: bool(host.up) and host.quarantine is None)
        return self._hosts_told

    def _slots(self, hosts: Sequence[HostStatus]) -> Sequence[LimitStatus]:
        """The slots of the hosts that are in service: a pool of static hosts has no other limit."""
        in_service = [host for host in hosts if host.up is not False and host.quarantine is None]
        nodes = [self._pool.cache.nodes.get(node_id) for host in in_service for node_id in host.nodes]
        used = sum(node is not None and (node.state != states.READY or bool(node.allocated_to)) for node in nodes)
        return [LimitStatus("pool", "slots", sum(host.slots for host in in_service), used)] if hosts else []

    def _labels(self, before: PoolStatus, provider: Provider, now: float) -> dict[str, LabelStatus]:
        """Labels of the pool that cannot be served. What a driver does not know the begin of began when it was seen."""
        found: dict[str, LabelStatus] = {}
        for label, told in gateway.label_errors(provider).items():
            if label in self._pool.labels:
                known = before.labels.get(label)
                since = told.since or (now if known is None else known.since)
                found[label] = replace(told, since=since)
        return found

    def _waiting(self, before: PoolStatus, snapshot: Snapshot, now: float) -> Sequence[WaitingStatus]:
        began = {(one.labels, one.provider, one.tenant, one.mark, one.code): one.since for one in before.waiting}
        found = []
        for kind, count, waiting in snapshot.kinds[:MAX_KINDS]:
            code = waiting.reason.code.value
            oldest = self._pool.cache.requests.get(self._pool.queue.oldest(kind) or "")
            # Of a kind that no pass has looked at yet each answer would be a new one.
            since = began.get((kind.labels, kind.provider, kind.tenant_name, kind.mark, code), waiting.since)
            found.append(
                WaitingStatus(
                    labels=kind.labels,
                    provider=kind.provider,
                    tenant=kind.tenant_name,
                    count=count,
                    oldest=None if oldest is None else oldest.created_time,
                    code=code,
                    text=waiting.reason.text,
                    numbers=dict(waiting.reason.numbers),
                    since=min(since, waiting.since, now),
                    mark=kind.mark,
                    min_ready=kind.min_ready,
                )
            )
        return found


def _state(provider: Provider, snapshot: Snapshot, hold: Maintenance | None) -> tuple[str, PauseStatus]:
    """The state of a pool, and its cause."""
    if hold is not None:
        code = maintenance.reason(hold).code.value
        return "maintenance", PauseStatus(code, hold.text, hold.since, hold.until)
    unavailable = gateway.pause_status(provider)
    if unavailable is not None:
        return "unavailable", unavailable
    paused = [told for told in snapshot.requests if told.stage is Stage.PAUSED]
    if paused:
        reason = min(paused, key=attrgetter("since")).reason
        return "paused", PauseStatus(reason.code.value, reason.text)
    return "running", PauseStatus()


def _request(told: Explanation) -> RequestStatus:
    reason = told.reason
    return RequestStatus(
        told.request_id, told.stage.value, reason.code.value, reason.text, dict(reason.numbers), told.since
    )


# How much of a pool's status is stored: lists are cut until it fits.

#: Most bytes of JSON of one record.
MAX_BYTES: Final = 64 * 1024
#: Lists and objects that may be cut.
LISTS: Final = (
    *("limits", "labels", "waiting", "requests", "declined"),
    *("launching", "hosts", "slow_calls", "failing_calls", "missing", "other_installations"),
)
#: Entries of one of them at most.
MAX_ENTRIES: Final = 200
#: Bytes that an entry is not longer than, as a rule: fewer entries are not measured.
_ENTRY_BYTES: Final = 500


def bounded(status: PoolStatus, max_bytes: int = MAX_BYTES) -> PoolStatus:
    """A status that fits: `PoolStatus.omitted` counts what was left out of its lists.

    Of ``declined`` the last entries stay, of other lists the first ones.
    """
    for name in LISTS:
        status = _cut(status, name, MAX_ENTRIES)
    if sum(len(getattr(status, name)) for name in LISTS) * _ENTRY_BYTES <= max_bytes:
        return status
    while any(getattr(status, name) for name in LISTS) and len(as_json(status)) > max_bytes:
        longest = max(LISTS, key=lambda name: len(as_json(getattr(status, name))))
        status = _cut(status, longest, len(getattr(status, longest)) // 2)
    return status


def _cut(status: PoolStatus, name: str, size: int) -> PoolStatus:
    """A status with so many entries of a list at most."""
    entries: Any = getattr(status, name)
    left_out = len(entries) - size
    if left_out <= 0:
        return status
    if isinstance(entries, Mapping):
        kept: Any = dict(list(entries.items())[:size])
    else:
        kept = entries[left_out:] if name == "declined" else entries[:size]
    return replace(status, **{name: kept}, omitted=status.omitted + left_out)


# `StatsWorker`: sends the gauges of a launcher (reference/metrics 1, 2, 5).
#
# One launcher of the system, the leader, sends what concerns all of them: nodes and requests. Every launcher sends its
# own limits and internals.

#: Node gauges are sent at most this often, however many changes there are.
CHANGES_SECONDS: Final = 1.0
#: Limits are sent this often: the released launcher sends them with each pass of a pool.
LIMITS_SECONDS: Final = 1.0
#: Internals are sent this often; a launcher that does not lead asks this often whether the leader has ended.
INTERNALS_SECONDS: Final = 10.0
#: The leader sends node gauges at least this often: a datagram may get lost, a statsd server be restarted.
REFRESH_SECONDS: Final = 60.0
#: Groups of gauges: two of this launcher, one of the whole system.
LIMITS: Final = "limits"
INTERNALS: Final = "internals"
SYSTEM: Final = "system"


class StatsWorker(PassThread):
    """A thread that owns all of its state; `changed` and `stop` may be called from any other.

    :param statsd: its address is looked up here.
    :param registry: gets all gauges, and sends them to statsd.
    """

    error_text = "Metrics could not be sent"

    def __init__(self, statsd: StatsdClient, registry: Registry, launcher: Launcher) -> None:
        super().__init__("StatsWorker", logging.getLogger(log_names.STATS_WORKER), LIMITS_SECONDS)
        self._statsd = statsd
        self._registry = registry
        self._launcher = launcher
        self._cache = launcher.cache
        self._hostname = socket.gethostname()
        self._election = Election(launcher.zk.client, "stats", f"{self._hostname}-{os.getpid()}")
        self._changed = threading.Event()
        #: Does this launcher send the gauges of all nodes and requests? Any thread may read it.
        self.leads = False
        self._group_at = {LIMITS: -math.inf, INTERNALS: -math.inf}
        self._election_at = -math.inf
        self._sent_at = -math.inf

    def changed(self, record_id: str = "") -> None:
        """A node, request or pool changed. For cache listeners: thread-safe, cheap, does not block.

        :param record_id: not looked at.
        """
        self._changed.set()

    def run_once(self) -> float:
        """One pass: send what is due.

        :return: seconds until the next pass.
        """
        now = monotonic()
        self._statsd.resolve()
        for group, seconds, make in (
            (LIMITS, LIMITS_SECONDS, self._limits),
            (INTERNALS, INTERNALS_SECONDS, self._internals),
        ):
            if now >= self._group_at[group] + seconds:
                self._group_at[group] = now
                # A mistake in one group of gauges must not end the others.
                with Guard(self.log, "Gauges of %s could not be sent", group):
                    self._registry.replace(group, make())
        if self._lead(now) and self._due(now):
            self.emit_once()
            self._sent_at = now
        return max(0.0, self._group_at[LIMITS] + LIMITS_SECONDS - now)

    def emit_once(self) -> None:
        """Send all node and request gauges now, no matter who leads."""
        # Before the reading: what changes meanwhile is sent in the next pass.
        self._changed.clear()
        pools = list(self._cache.pools.values())
        values = reports.node_gauges(self._cache.nodes.values(), pools)
        values.update(reports.request_gauges(self._cache.requests.values(), pools))
        self._registry.replace(SYSTEM, values)

    def _limits(self) -> reports.Gauges:
        """Of this launcher."""
        config = self._launcher.config()
        max_servers = {
            name: [math.inf if pool.max_servers is None else pool.max_servers for pool in provider.pools.values()]
            for name, provider in config.providers.items()
        }
        return reports.limit_gauges(max_servers, config.tenant_resource_limits)

    def _internals(self) -> reports.Gauges:
        """Of this launcher: its connection to ZooKeeper, its caches and providers (reference/metrics 5)."""
        running = self._launcher.providers.running
        is_open = {name: gateway.paused_reason(provider) is not None for name, provider in running.items()}
        reads = self._cache.nodes.pending_reads, self._cache.requests.pending_reads
        queued = reports.internal_gauges(self._hostname, self._launcher.zk.client.queued_calls, *reads)
        return {**reports.circuit_gauges(self._hostname, is_open), **queued}

    def _lead(self, now: float) -> bool:
        """Ask at each pass while we lead (costs nothing), and seldom while we do not."""
        if not self.leads and now < self._election_at + INTERNALS_SECONDS:
            self._changed.clear()
            return False
        self._election_at = now
        was_leading, self.leads = self.leads, self._election.is_leader()
        if self.leads and not was_leading:
            self._sent_at = -math.inf
        elif was_leading and not self.leads:
            self._registry.forget(SYSTEM)
        return self.leads

    def _due(self, now: float) -> bool:
        if now >= self._sent_at + REFRESH_SECONDS:
            return True
        return self._changed.is_set() and now >= self._sent_at + CHANGES_SECONDS
