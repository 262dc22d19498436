# SPDX-License-Identifier: Apache-2.0
"""`MaintenanceState`: what operators hold back in this launcher (rules MT)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nodepool.clock import wall_time
from nodepool.model.maintenance import Maintenance, Mode
from nodepool.plan import maintenance_effect

if TYPE_CHECKING:
    from nodepool.model.maintenance import MaintenanceRecords


def names_of_this_host() -> Sequence[str]:
    """The names by which a record may mean this launcher."""
    return tuple(dict.fromkeys((socket.gethostname(), socket.getfqdn())))


class MaintenanceState:
    """Any thread may ask; nothing blocks.

    :param records: all that are known now.
    :param host_names: of this launcher's host; the first one is that of its registration.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        records: Callable[[], MaintenanceRecords],
        host_names: Sequence[str],
        clock: Callable[[], float] = wall_time,
    ) -> None:
        self._records = records
        self._host_names = tuple(host_names)
        self._clock = clock
        #: Set once, by a signal.
        self._own_drain: Maintenance | None = None
        #: The record that drained the launcher before it started.
        self._old_drain: Maintenance | None = None

    # -- the main thread --

    def note_start(self) -> None:
        """A record that drains the launcher already now does not end it: somebody has started it all the same."""
        found = self.launcher
        self._old_drain = found if found is not None and found.mode is Mode.DRAIN else None

    def drain(self, reason: str) -> None:
        """Take nothing new from now on, until the process ends."""
        self._own_drain = Maintenance("launcher", self._host_names[0], Mode.DRAIN, reason, since=self._clock())

    # -- any thread --

    @property
    def launcher(self) -> Maintenance | None:
        """The record that holds for the whole launcher now."""
        return self._own_drain or maintenance_effect.of_launcher(self._records(), self._host_names, self._clock())

    @property
    def ends_when_idle(self) -> bool:
        """Is the launcher to end as soon as it has finished what it does?"""
        found = self.launcher
        return found is not None and found.mode is Mode.DRAIN and found != self._old_drain

    def of_pool(self, provider_name: str, pool_name: str) -> Maintenance | None:
        """Why a pool takes nothing new; None = it does."""
        now = self._clock()
        return self._own_drain or maintenance_effect.of_pool(
            self._records(), self._host_names, provider_name, pool_name, now
        )

    def of_labels(self) -> dict[str, Maintenance]:
        """The labels that no pool serves now."""
        return maintenance_effect.of_labels(self._records(), self._clock())

    def holds(self, provider_name: str, pool_name: str, label: str) -> bool:
        """Is nothing launched for a label in a pool?"""
        return self.of_pool(provider_name, pool_name) is not None or label in self.of_labels()
