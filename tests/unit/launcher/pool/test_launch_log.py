# SPDX-License-Identifier: Apache-2.0
"""Launches of the last 15 minutes (W-6)."""

from __future__ import annotations

from nodepool.launcher.pool.handlers import AGE_SECONDS, MAX_ERRORS, SPAN_SECONDS, USUAL_OF, LaunchLog
from nodepool.model.status import FailedLaunch, LaunchesStatus
from tests.support.manual_clock import ManualClock


def test_what_is_old_is_not_counted() -> None:
    """W-6"""
    clock = ManualClock()
    log = LaunchLog(clock)
    log.ready()
    log.failed("1", "small", "error.status", "the server is\nin state ERROR")
    error = FailedLaunch("error.status", "the server is in state ERROR", clock(), "1", "small")
    assert log.status(3) == LaunchesStatus(3, 1, 1, error)
    clock.pass_seconds(AGE_SECONDS / 2)
    log.ready()
    assert log.status(0) == LaunchesStatus(0, 2, 1, error)
    clock.pass_seconds(AGE_SECONDS / 2 + 1)
    assert log.status(0) == LaunchesStatus(0, 1, 0, None)
    clock.pass_seconds(AGE_SECONDS)
    assert log.status(0) == LaunchesStatus()


def test_errors_of_nodes() -> None:
    """J-3: a request is declined with the cause of its nodes; the last one of each, and of the last nodes."""
    log = LaunchLog(ManualClock())
    for number in range(MAX_ERRORS + 2):
        log.failed(str(number), "small", "error.status", f"first of {number}")
    log.failed("5", "small", "error.quota", "the last one")
    assert (log.error_of("5"), log.error_of("6")) == ("the last one", "first of 6")
    assert (log.error_of("0"), log.error_of("1"), log.error_of("unknown")) == ("", "", "")


def test_memory() -> None:
    """W-6: as long as nothing is old there is one count for each span, not one for each launch."""
    clock = ManualClock()
    log = LaunchLog(clock)
    for _ in range(100):
        log.ready()
    clock.pass_seconds(SPAN_SECONDS)
    log.ready()
    assert log.status(0).ok_15m == 101
    assert len(log._spans) == 2


def test_clock_that_goes_back() -> None:
    """W-6: nothing is lost when the time is set."""
    clock = ManualClock()
    log = LaunchLog(clock)
    log.ready()
    clock.pass_seconds(-3600)
    log.ready()
    assert log.status(0).ok_15m == 2


def test_usual_times() -> None:
    """W-6: the median of the last launches of a label; nothing is usual before there were some."""
    clock = ManualClock()
    log = LaunchLog(clock)
    for seconds in (2.0, 100.0):
        log.ready("small", clock() - seconds)
    assert log.usual("small") is None
    log.ready("small", clock() - 4.0)
    log.ready("large", clock() - 60.0)
    assert (log.usual("small"), log.usual("large"), log.usual("unknown")) == (4.0, None, None)
    for _ in range(USUAL_OF):
        log.ready("small", clock() - 9.0)
    assert log.usual("small") == 9.0, "the last ones count"
