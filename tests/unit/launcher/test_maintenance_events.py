# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nodepool.launcher.event_ring import EventRing
from nodepool.launcher.maintenance_events import MaintenanceEvents
from nodepool.model.maintenance import Maintenance, MaintenanceRecords, Mode

PAUSE = Maintenance("provider", "cloud", Mode.PAUSE, "new switch", "alice", 5.0)


class Records:
    """A cache that the test fills."""

    def __init__(self) -> None:
        self.records: MaintenanceRecords = {}

    def add_listener(self, listener: Callable[[], None]) -> None:
        self.tell = listener

    def snapshot(self) -> MaintenanceRecords:
        return self.records

    def put(self, *records: Maintenance) -> None:
        self.records = {(record.kind, record.name): record for record in records}
        self.tell()


def test_begin_and_end() -> None:
    """OV-4"""
    records: Any = Records()
    ring = EventRing()
    MaintenanceEvents(records, ring, "l1")
    for _ in range(2):
        records.put(PAUSE)
    (event,) = ring.last(10)
    assert (event.at, event.subject, event.what) == (5.0, "provider cloud", "maintenance began")
    assert event.text == "provider cloud is paused by alice: new switch"
    records.put(replace(PAUSE, until=500.0))
    assert len(ring.last(10)) == 1
    records.put(replace(PAUSE, mode=Mode.DRAIN))
    assert ring.last(1)[0].text == "provider cloud is drained by alice: new switch"
    records.put()
    assert [event.what for event in ring.last(10)] == ["maintenance began", "maintenance began", "maintenance ended"]
