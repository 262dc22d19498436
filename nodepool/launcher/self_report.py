# SPDX-License-Identifier: Apache-2.0
"""`SelfReport`: what a launcher reports about itself, beside its pools (rules W)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nodepool.clock import wall_time
from nodepool.model.event import Event
from nodepool.model.launcher_status import MAX_EVENTS, AbsentProvider, LauncherStatus, ReloadStatus
from nodepool.model.maintenance import Mode
from nodepool.model.typed_record import as_json

if TYPE_CHECKING:
    from nodepool.model.maintenance import Maintenance

#: Most bytes of JSON of the events in the record.
EVENT_BYTES: Final = 48 * 1024


class SelfReport:
    """For one thread, that of the status worker.

    :param config_file: path. ``servers``: of ZooKeeper, as in the connection string.
    :param digest: of the configuration that is in effect.
    :param pools: ``<provider>/<pool>`` of all pools.
    :param maintenance: the record that holds for the whole launcher.
    :param leads: does it send the gauges of all nodes and requests?
    :param events: the newest events, the oldest of them first; is given how many.
    """

    def __init__(
        self,
        *,
        version: str,
        config_file: str,
        servers: str,
        digest: Callable[[], str],
        pools: Callable[[], Sequence[str]],
        absent: Callable[[], Mapping[str, AbsentProvider]],
        reload: Callable[[], ReloadStatus | None],
        tenant_limits: Callable[[], Mapping[str, Mapping[str, float]]],
        maintenance: Callable[[], Maintenance | None],
        leads: Callable[[], bool],
        events: Callable[[int], Sequence[Event]],
    ) -> None:
        self._digest = digest
        self._pools = pools
        self._absent = absent
        self._reload = reload
        self._tenant_limits = tenant_limits
        self._maintenance = maintenance
        self._leads = leads
        self._events = events
        self._start = LauncherStatus(
            host=socket.gethostname(),
            pid=os.getpid(),
            version=version,
            config_file=config_file,
            since=wall_time(),
            servers=servers,
        )
        #: Of the znode.
        self.name = f"{self._start.host}-{self._start.pid}"

    def make(self) -> LauncherStatus:
        """The status of now. Equal to the one before if nothing changed."""
        events, omitted = _newest(self._events(MAX_EVENTS))
        maintenance = self._maintenance()
        draining = maintenance is not None and maintenance.mode is Mode.DRAIN
        return replace(
            self._start,
            config=self._digest(),
            state="draining" if draining else "running",
            maintenance=None if maintenance is None else maintenance.text,
            leader=self._leads(),
            pools=sorted(self._pools()),
            absent=[provider for _, provider in sorted(self._absent().items())],
            reload=self._reload(),
            tenant_limits=self._tenant_limits(),
            events=events,
            omitted=omitted,
        )


def _newest(events: Sequence[Event]) -> tuple[Sequence[Event], int]:
    """The newest events that fit, and how many are left out."""
    room = EVENT_BYTES
    for count, event in enumerate(reversed(events)):
        room -= len(as_json(event)) + 1
        if room < 0:
            return events[len(events) - count :], len(events) - count
    return events, 0
