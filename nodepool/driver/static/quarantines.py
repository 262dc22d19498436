# SPDX-License-Identifier: Apache-2.0
"""Which hosts are taken out of service, by an operator or because they fail? (rules S-16, S-17)"""

from __future__ import annotations

import math
import socket
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.model.maintenance import Maintenance, MaintenanceRecords, Mode
from nodepool.plan.maintenance_effect import CLOCK_SKEW_SECONDS, next_end, of_host

if TYPE_CHECKING:
    from nodepool.plan.static_hosts import HostId, HostSpec
    from nodepool.zk.zookeeper import ZooKeeper

_NONE: Final[Mapping[HostId, Maintenance]] = MappingProxyType({})


def cause(record: Maintenance) -> str:
    """Who quarantined a host and why, for an operator."""
    return ": ".join(part for part in (record.by, record.reason) if part) or "no reason was given"


class Quarantines:
    """The maintenance records of a provider's hosts. Any thread may ask; only `quarantine` blocks.

    Without a cache, in a command, none is known: the launchers put a quarantined host's node on hold.

    :param wall: seconds since the epoch.
    """

    def __init__(self, zk: ZooKeeper, hosts: Mapping[HostId, HostSpec], wall: Callable[[], float] = wall_time) -> None:
        self._zk = zk
        self._hosts = hosts
        self._wall = wall
        self._read = False
        #: Who writes the records of this launcher.
        self.by = f"launcher {socket.gethostname()}"

    def of(self, host: HostId) -> Maintenance | None:
        """Why a host is out of service now; None = it is not."""
        records = self._records()
        return of_host(records, *host, self._wall()) if records else None

    def held(self) -> Mapping[HostId, Maintenance]:
        """All hosts that are out of service now."""
        records, now = self._records(), self._wall()
        if not any(kind == "host" for kind, _ in records):
            return _NONE
        return {host: record for host in self._hosts if (record := of_host(records, *host, now)) is not None}

    def seconds_to_next_end(self) -> float:
        """Until the next record ends by itself; infinite = none does."""
        now = self._wall()
        end = next_end(self._records(), now)
        return math.inf if end is None else max(0.0, end - now)

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._wall()

    def ended_early(self, record: Maintenance) -> bool:
        """Did somebody end a record that would have held longer? Clocks of hosts differ."""
        return not record.is_over(self._wall() + CLOCK_SKEW_SECONDS)

    def surely_over(self, hosts: Collection[HostId]) -> set[HostId]:
        """Those of some hosts that ZooKeeper has no record of. Blocks for round trips.

        The cache may learn of a node on hold before it has read the record that the node is on hold for.

        :raises ZKException: it could not be asked.
        """
        records, now = self._zk.maintenance.read_all(), self._wall()
        return {host for host in hosts if of_host(records, *host, now) is None}

    @property
    def known(self) -> bool:
        """Have the records been read? Before that nodes on hold would be taken for those of released hosts."""
        cache = self._zk.cache
        self._read = self._read or cache is None or cache.maintenance.ready.is_set()
        return self._read

    def quarantine(self, host: HostId, reason: str, seconds: float, *, since: float | None = None) -> bool:
        """Take a host that fails out of service for a time, for all launchers. Blocks for round trips.

        :param since: when it was quarantined first, in seconds since the epoch; None = now.
        :return: False = an operator has quarantined it.
        :raises ZKException: it is not done.
        """
        now = self._wall()
        record = Maintenance("host", str(host), Mode.QUARANTINE, reason, self.by, since or now, now + seconds, True)
        return self._zk.maintenance.put_automatic(record, now)

    def _records(self) -> MaintenanceRecords:
        cache = self._zk.cache
        return cache.maintenance.snapshot() if cache is not None else {}
