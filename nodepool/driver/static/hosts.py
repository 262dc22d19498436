# SPDX-License-Identifier: Apache-2.0
"""What the checks of each host have shown, and when it is checked again: those that are down delay no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.driver.static.checks import HostKeysMissing
from nodepool.driver.static.registration import cause
from nodepool.model.event import short
from nodepool.model.status import HostStatus
from nodepool.plan.static import (
    RETRY,
    TELL_AGAIN,
    HostHealth,
    HostId,
    HostSpec,
    LabelSlots,
    SlotId,
    after_failure,
    after_success,
    is_our_network,
    is_quarantined_by,
    quarantine_pause,
    waits_for,
)

if TYPE_CHECKING:
    from nodepool.driver.static.registration import SlotIndex
    from nodepool.model.maintenance import Maintenance
    from nodepool.model.reasons import Reason

_UNKNOWN: Final = HostHealth()


@dataclass(frozen=True)
class _NextTry:
    """When a host is checked again: by the clock of the provider, and in seconds since the epoch."""

    due: float
    at: float


@dataclass
class _LastWarning:
    """What the log said last of a host that is down.

    :param again: when it is said again. ``times``: how often it was.
    """

    text: str
    again: float
    times: int = 1


class HostMonitor:
    """Written by the provider's thread; any thread may read.

    Logs what is wrong with a host when that changes, and as long as it stays less and less often.

    :param hosts: the configuration.
    :param wall: seconds since the epoch.
    """

    def __init__(
        self, hosts: Mapping[HostId, HostSpec], log: logging.Logger, wall: Callable[[], float] = wall_time
    ) -> None:
        self._hosts = hosts
        self.log = log
        self._wall = wall
        self._health: dict[HostId, HostHealth] = {}
        self._next: dict[HostId, _NextTry] = {}
        self._told: dict[HostId, _LastWarning] = {}
        #: Grows when a host goes or comes.
        self.changes = 0

    def health(self, host: HostId) -> HostHealth:
        """What its checks have shown. Any thread; does not block."""
        return self._health.get(host, _UNKNOWN)

    def next_try(self, host: HostId) -> float | None:
        """When a host that is down is checked again, in seconds since the epoch. Any thread; does not block."""
        found = self._next.get(host)
        return None if found is None else found.at

    def due(self, host: HostId) -> float:
        """Time of the next check; 0 for a host without trouble."""
        found = self._next.get(host)
        return 0.0 if found is None else found.due

    def failed(self, host: HostId, error: Exception, now: float) -> None:
        """Note that a host failed its check.

        :param now: of any clock that only goes forward, in seconds.
        """
        at = self._wall()
        text = str(error) or type(error).__name__
        health = self._set(host, after_failure(self.health(host), text, at, self._quarantine_after(host)))
        # Somebody must change something; S-3.
        pause = RETRY.longest_seconds if isinstance(error, HostKeysMissing) else RETRY.pause(health.failures)
        self._next[host] = _NextTry(now + pause, at + pause)
        self._tell(host, health, now, at)

    def quarantine_seconds(self, host: HostId) -> float | None:
        """For how long a host that failed is quarantined now; None = it is not (S-16)."""
        health = self.health(host)
        if not is_quarantined_by(health, self._quarantine_after(host)):
            return None
        checked = [each.up for each in self._health.values() if each.up is not None]
        if is_our_network(checked.count(False), len(checked)):
            return None
        return quarantine_pause(health, self._wall())

    def retry_now(self, host: HostId, *, forget: bool) -> None:
        """The quarantine of a host is over: it is checked at once.

        :param forget: an operator released it: its failures count anew.
        """
        self._next.pop(host, None)
        if forget:
            self._health[host] = replace(self.health(host), row=0, returns=0)

    def worked(self, host: HostId) -> None:
        """Note that a host passed its check."""
        before = self.health(host)
        health = self._set(host, after_success(before, self._wall()))
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

    def _quarantine_after(self, host: HostId) -> int:
        spec = self._hosts.get(host)
        return 0 if spec is None else spec.quarantine_after

    def _set(self, host: HostId, health: HostHealth) -> HostHealth:
        if health.up != self.health(host).up:
            self.changes += 1
        self._health[host] = health
        return health

    def _tell(self, host: HostId, health: HostHealth, now: float, at: float) -> None:
        told = self._told.get(host)
        if told is None or told.text != health.text:
            self._told[host] = _LastWarning(health.text, now + TELL_AGAIN.pause(1))
            self.log.warning(
                "Static host %s is not registered: %s. It is tried again, at the latest every %g s",
                *(host, health.text, RETRY.longest_seconds),
            )
        elif now >= told.again:
            told.times += 1
            told.again = now + TELL_AGAIN.pause(told.times)
            self.log.warning(
                "Static host %s is still down, for %s now, after %d failed checks: %s",
                *(host, short(at - health.since), health.failures, health.text),
            )


# What a static provider reports of its hosts, to commands and to requests that wait for one.

#: (pool, label) -> slots
_Slots = Mapping[tuple[str, str], LabelSlots]


class HostView:
    """Any thread may ask; nothing blocks.

    :param hosts: the configuration.
    """

    def __init__(self, hosts: Mapping[HostId, HostSpec], monitor: HostMonitor) -> None:
        self._hosts = hosts
        self._monitor = monitor
        #: Hosts that are out of service, as of the provider's last pass. Replaced as a whole.
        self.held: Mapping[HostId, Maintenance] = {}
        #: As `has_news` saw it last.
        self._told: tuple[int, Mapping[HostId, Maintenance]] = (0, self.held)
        #: What was seen of the monitor and of `held`, and slots by (pool, label). Replaced as a whole.
        self._slots: tuple[int, Mapping[HostId, Maintenance] | None, _Slots] = (-1, None, {})

    def statuses(self, index: SlotIndex | None) -> list[HostStatus]:
        """Every host, in the order of the configuration.

        :param index: of their nodes; None = they are not known.
        """
        return [self._status(spec, index) for spec in self._hosts.values()]

    def _status(self, spec: HostSpec, index: SlotIndex | None) -> HostStatus:
        health, record = self._monitor.health(spec.id), self.held.get(spec.id)
        nodes: list[str] = []
        if index is not None:
            nodes = [node.key for slot in range(spec.slots) for node in index.nodes_in(SlotId(spec.id, slot))]
        return HostStatus(
            name=str(spec.id),
            up=health.up,
            text=health.text,
            since=health.since if record is None else record.since,
            next=self._monitor.next_try(spec.id) if record is None else record.until,
            quarantine=None if record is None else cause(record),
            slots=spec.slots,
            nodes=nodes,
            pool=spec.pool,
            labels=spec.labels,
        )

    def has_news(self) -> bool:
        """Did a host go or come since the call before? Only for the provider's thread."""
        seen, self._told = self._told, (self._monitor.changes, self.held)
        return seen[0] != self._told[0] or seen[1] is not self._told[1]

    def wait_reason(self, pool_name: str, labels: Sequence[str], free: Mapping[str, int]) -> Reason:
        """What a request waits for, see `Provider.waitReason`."""
        slots = self._label_slots()
        mine = {label: slots[pool_name, label] for label in labels if (pool_name, label) in slots}
        return waits_for(labels, mine, free)

    def _label_slots(self) -> _Slots:
        """The slots of each label of each pool; worked out again when a host went or came."""
        # Read first: what changes meanwhile is seen by the next call.
        changes, held = self._monitor.changes, self.held
        seen = self._slots
        if seen[0] != changes or seen[1] is not held:
            seen = self._slots = (changes, held, self._count(held))
        return seen[2]

    def _count(self, held: Mapping[HostId, Maintenance]) -> _Slots:
        counted: dict[tuple[str, str], LabelSlots] = {}
        for spec in self._hosts.values():
            up = self._monitor.health(spec.id).up
            for label in spec.labels:
                found = counted.get((spec.pool, label), LabelSlots())
                found = replace(found, total=found.total + spec.slots)
                if spec.id in held:
                    found = replace(found, quarantined=found.quarantined.plus(str(spec.id), spec.slots))
                elif up is None:
                    found = replace(found, unchecked=found.unchecked.plus(str(spec.id), spec.slots))
                elif not up:
                    found = replace(found, down=found.down.plus(str(spec.id), spec.slots))
                counted[spec.pool, label] = found
        return counted
