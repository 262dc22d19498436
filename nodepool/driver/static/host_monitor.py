# SPDX-License-Identifier: Apache-2.0
"""What the checks of each host have shown, and when it is checked again: those that are down delay no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from nodepool.clock import wall_time
from nodepool.driver.static.checks import HostKeysMissing
from nodepool.model.elapsed import short
from nodepool.plan.host_health import (
    RETRY,
    TELL_AGAIN,
    HostHealth,
    after_failure,
    after_success,
    is_our_network,
    is_quarantined_by,
    quarantine_pause,
)
from nodepool.plan.static_hosts import HostId, HostSpec

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
