# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.static.host_monitor`."""

from __future__ import annotations

import logging

import pytest

from nodepool.driver.static.checks import HostKeysMissing
from nodepool.driver.static.host_monitor import HostMonitor
from nodepool.plan.host_health import RETRY
from nodepool.plan.static_hosts import HostId
from tests.support.manual_clock import ManualClock

HOST = HostId("host1", "zuul", 22)


@pytest.fixture
def wall() -> ManualClock:
    return ManualClock(1_000_000.0)


@pytest.fixture
def monitor(wall: ManualClock) -> HostMonitor:
    return HostMonitor({}, logging.getLogger("hosts"), wall)


def test_next_try(monitor: HostMonitor, wall: ManualClock) -> None:
    """S-4: later with each failure; S-3: a wrong key is for somebody to change."""
    assert (monitor.due(HOST), monitor.next_try(HOST), monitor.health(HOST).up) == (0.0, None, None)
    monitor.failed(HOST, OSError("away"), 50.0)
    assert (monitor.due(HOST), monitor.next_try(HOST)) == (51.0, wall.now + 1)
    monitor.failed(HOST, OSError("away"), 60.0)
    assert monitor.due(HOST) == 62.0
    monitor.failed(HOST, HostKeysMissing("another host"), 70.0)
    assert monitor.due(HOST) == 70.0 + RETRY.longest_seconds
    monitor.worked(HOST)
    assert (monitor.due(HOST), monitor.next_try(HOST)) == (0.0, None)


def test_changes_are_counted(monitor: HostMonitor) -> None:
    """S-15: only when a host goes or comes."""
    seen = []
    for step in (monitor.worked, monitor.worked):
        step(HOST)
        seen.append(monitor.changes)
    for _ in range(2):
        monitor.failed(HOST, OSError("away"), 0.0)
        seen.append(monitor.changes)
    assert seen == [1, 1, 2, 2]


def test_a_host_that_stays_down_is_told_again(
    monitor: HostMonitor, wall: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """S-4: at once, after 10 minutes, after 20 more, and then every hour at the least; and when it works again."""
    caplog.set_level(logging.INFO)
    begun, told = wall.now, []
    for _ in range(4 * 60):
        monitor.failed(HOST, OSError("away"), wall.now)
        if caplog.records:
            told.append((wall.now - begun) / 60)
        caplog.clear()
        wall.pass_seconds(60)
    assert told == [0, 10, 30, 70, 130, 190]
    monitor.failed(HOST, OSError("name unknown"), wall.now)
    assert "Static host zuul@host1:22 is not registered: name unknown. It is tried again" in caplog.text
    monitor.worked(HOST)
    assert "works again after 241 failed check(s); it was down for 4 h" in caplog.text


def test_text_of_a_host_that_stays_down(
    monitor: HostMonitor, wall: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    monitor.failed(HOST, OSError("away"), 0.0)
    wall.pass_seconds(5400)
    monitor.failed(HOST, OSError(), 5400.0)
    monitor.failed(HOST, OSError(), 9000.0)
    assert [record.getMessage() for record in caplog.records][1:] == [
        "Static host zuul@host1:22 is not registered: OSError. It is tried again, at the latest every 60 s",
        "Static host zuul@host1:22 is still down, for 1 h 30 min now, after 3 failed checks: OSError",
    ]
