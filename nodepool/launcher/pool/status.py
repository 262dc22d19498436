# SPDX-License-Identifier: Apache-2.0
"""What a pool reports about itself to commands and pages (rules W), and how much of it is stored."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver import gateway
from nodepool.model.record import as_json
from nodepool.model.status import (
    HostStatus,
    LabelStatus,
    LaunchStatus,
    LimitStatus,
    PauseStatus,
    PoolStatus,
    RequestStatus,
    WaitingStatus,
)
from nodepool.plan import attention, maintenance
from nodepool.plan.triage import Stage
from nodepool.version import release_string

if TYPE_CHECKING:
    from nodepool.driver.interface import Provider
    from nodepool.launcher.pool.desk import Explanation, Snapshot
    from nodepool.launcher.pool.view import Pool
    from nodepool.model.status import Maintenance

#: Declined requests that are told: the last ones.
MAX_DECLINED: Final = 100
#: Requests that are told one by one: those that are where they are for longest.
MAX_REQUESTS: Final = 200
#: Launches in progress that are listed one by one: those that began first.
MAX_LAUNCHES: Final = 100
#: Kinds of waiting requests that are told: those that are known for longest.
MAX_KINDS: Final = 200
#: A provider is asked for its hosts again after so many seconds for each of them: thousands take their time.
HOST_SECONDS: Final = 0.05
#: At the latest after so many.
MAX_HOST_SECONDS: Final = 10.0


class PoolStatusMaker:
    """For one thread, that of the status worker. Nothing blocks, and nothing asks ZooKeeper or a cloud."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        #: Hosts of the pool, and when the provider told them.
        self._hosts_told: Sequence[HostStatus] = ()
        self._hosts_at = 0.0
        self._before = PoolStatus(
            id=pool.launcher_id,
            host=socket.gethostname(),
            version=release_string(),
            provider=pool.provider_name,
            pool=pool.pool_name,
        )

    def make(self, now: float) -> PoolStatus:
        """The status of now. Equal to the one before if nothing changed, however much later it is made.

        :param now: seconds since the epoch.
        """
        pool, before = self._pool, self._before
        made = replace(before, since=before.since or now)
        if pool.has_provider:
            made = bounded(self._look(pool.provider, now))
        self._before = made
        return made

    def _look(self, provider: Provider, now: float) -> PoolStatus:
        pool, before = self._pool, self._before
        snapshot = pool.desk.snapshot()
        slow_calls = gateway.slow_calls(pool.provider_name, attention.SLOW_CALL_SECONDS)
        ready = pool.launcher.free_counts.of_pool(pool.provider_name, pool.pool_name)
        state, cause = _state(provider, snapshot, pool.hold)
        same = before.since and (state, cause.code or None) == (before.state, before.code)
        return replace(
            before,
            config=pool.launcher.config().digest,
            driver=getattr(pool.config.driver, "name", "") or "",
            launches_nodes=bool(provider.LAUNCHES),
            state=state,
            since=cause.since or (before.since if same else now),
            code=cause.code or None,
            text=cause.text or None,
            next=cause.next,
            limits=self._limits(provider, snapshot),
            labels=self._labels(provider, now),
            ready=dict(sorted(ready.items())),
            waiting=self._waiting(snapshot, now),
            requests=[_request(told) for told in sorted(snapshot.requests, key=_since)[:MAX_REQUESTS]],
            declined=[_request(told) for told in snapshot.declined[-MAX_DECLINED:]],
            launches=pool.launch_log.status(pool.launches()),
            launching=self._launching(now),
            hosts=self._hosts(provider, now),
            # Rounded down, so that a call that has not ended changes the record now and then only.
            slow_calls={hook: attention.rounded(seconds) for hook, seconds in slow_calls.items()},
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
        # Of others nobody here waits for anything.
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
            self._hosts_at, self._hosts_told = (
                now,
                sorted(found, key=lambda host: bool(host.up) and host.quarantine is None),
            )
        return self._hosts_told

    def _labels(self, provider: Provider, now: float) -> dict[str, LabelStatus]:
        """Labels of the pool that cannot be served. What a driver does not know the begin of began when it was told."""
        found: dict[str, LabelStatus] = {}
        for label, told in gateway.label_errors(provider).items():
            if label in self._pool.labels:
                known = self._before.labels.get(label)
                since = told.since or (now if known is None else known.since)
                found[label] = replace(told, since=since)
        return found

    def _waiting(self, snapshot: Snapshot, now: float) -> Sequence[WaitingStatus]:
        before = {
            (kind.labels, kind.provider, kind.tenant, kind.mark, kind.code): kind.since for kind in self._before.waiting
        }
        found = []
        for kind, count, waiting in snapshot.kinds[:MAX_KINDS]:
            code = waiting.reason.code.value
            oldest = self._pool.cache.requests.get(self._pool.queue.oldest(kind) or "")
            # Of a kind that no pass has looked at yet each answer would be a new one.
            since = before.get((kind.labels, kind.provider, kind.tenant_name, kind.mark, code), waiting.since)
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
    paused = min((told for told in snapshot.requests if told.stage is Stage.PAUSED), key=_since, default=None)
    if paused is not None:
        return "paused", PauseStatus(paused.reason.code.value, paused.reason.text)
    return "running", PauseStatus()


def _since(told: Explanation) -> float:
    return told.since


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
    *("limits", "labels", "ready", "waiting", "requests", "declined"),
    *("launching", "hosts", "slow_calls", "missing", "other_installations"),
)
#: Entries of one of them at most.
MAX_ENTRIES: Final = 200
#: Bytes that an entry is not longer than, as a rule: fewer entries are not measured.
_ENTRY_BYTES: Final = 500


def bounded(status: PoolStatus, max_bytes: int = MAX_BYTES) -> PoolStatus:
    """A status that fits: `PoolStatus.omitted` counts what was left out of its lists.

    Of ``declined`` the last entries stay, of other lists the first ones.
    """
    status = _cut(status, dict.fromkeys(LISTS, MAX_ENTRIES))
    if sum(len(getattr(status, name)) for name in LISTS) * _ENTRY_BYTES <= max_bytes:
        return status
    while any(getattr(status, name) for name in LISTS) and len(as_json(status)) > max_bytes:
        longest = max(LISTS, key=lambda name: len(as_json(getattr(status, name))))
        size = len(getattr(status, longest)) // 2
        status = _cut(status, {longest: size})
    return status


def _cut(status: PoolStatus, sizes: Mapping[str, int]) -> PoolStatus:
    cut: dict[str, Any] = {}
    omitted = status.omitted
    for name, size in sizes.items():
        entries = getattr(status, name)
        if len(entries) > size:
            cut[name] = _kept(name, entries, size)
            omitted += len(entries) - size
    return replace(status, **cut, omitted=omitted) if cut else status


def _kept(name: str, entries: Sequence[Any] | Mapping[str, Any], size: int) -> Any:
    """What stays of a list."""
    if isinstance(entries, Mapping):
        return dict(list(entries.items())[:size])
    return entries[len(entries) - size :] if name == "declined" else entries[:size]
