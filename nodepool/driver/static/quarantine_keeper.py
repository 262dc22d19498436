# SPDX-License-Identifier: Apache-2.0
"""Quarantines hosts that fail, and has those checked at once whose quarantine is over (rule S-16)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from nodepool.driver.static.host_monitor import HostMonitor
from nodepool.driver.static.host_view import HostView
from nodepool.driver.static.quarantines import Quarantines, cause

if TYPE_CHECKING:
    from nodepool.model.maintenance import Maintenance
    from nodepool.plan.static_hosts import HostId


class QuarantineKeeper:
    """Owned by the provider's thread."""

    def __init__(self, quarantines: Quarantines, monitor: HostMonitor, view: HostView, log: logging.Logger) -> None:
        self._quarantines = quarantines
        self._monitor = monitor
        self._view = view
        self.log = log
        #: When hosts were quarantined first, in the row of failures that they are in or were in last.
        self._since: dict[HostId, float] = {}

    def look(self, failed: Iterable[HostId]) -> Mapping[HostId, Maintenance]:
        """Compare the records with those of the pass before; quarantine hosts that fail too often.

        :param failed: hosts that failed a check since the pass before.
        :return: hosts that are out of service. One that was quarantined here is known with its record, a moment later.
        :raises ZKException: it is not done; call it again.
        """
        before, held = self._view.held, self._quarantines.held()
        for host, record in before.items():
            if host not in held:
                self._monitor.retry_now(host, forget=self._quarantines.ended_early(record))
                self.log.info("Static host %s is not quarantined any more; it is checked now", host)
        for host, record in held.items():
            # What this launcher wrote was logged when it was written.
            if host not in before and not (record.automatic and record.by == self._quarantines.by):
                self.log.info("Static host %s is quarantined: %s", host, cause(record))
        if held != before:
            self._view.held = held
        for host in failed:
            if host not in held:
                self._quarantine(host)
        return held

    def _quarantine(self, host: HostId) -> None:
        seconds = self._monitor.quarantine_seconds(host)
        if seconds is None:
            return
        health = self._monitor.health(host)
        checks = "check" if health.row == 1 else "checks"
        reason = f"{health.row} failed {checks} in a row, the last one: {health.text}"
        since = self._since.get(host)
        if since is not None and since < health.since:
            since = None
        if self._quarantines.quarantine(host, reason, seconds, since=since):
            self._since[host] = since or self._quarantines.now()
            self.log.warning("Static host %s is quarantined, and checked again in %.0f s: %s", host, seconds, reason)
