# SPDX-License-Identifier: Apache-2.0
"""When what lasts is told again (rule J-6)."""

from __future__ import annotations

import pytest

from nodepool.model.reasons import ReasonCode
from nodepool.plan.retries import GAP_SECONDS, TOLD, Reminders, next_reminder


@pytest.mark.parametrize(
    ("lasted", "expected"),
    [(0, 60), (2, 60), (60, 300), (299, 300), (301, 900), (900, 3600), (3600, 7200), (9000, 10800)],
)
def test_schedule(lasted: float, expected: float) -> None:
    """J-6: after 1, 5 and 15 minutes, then once an hour."""
    assert next_reminder(lasted) == expected


def told(reminders: Reminders[str], times: range, lasting: list[str]) -> list[tuple[int, str]]:
    return [(now, thing) for now in times for thing in reminders.due(lasting, float(now))]


def test_what_goes_on() -> None:
    """J-6: once after the first seconds, then as scheduled; each thing has its own beginning."""
    reminders: Reminders[str] = Reminders(2.0)
    assert told(reminders, range(10), ["a"]) == [(2, "a")]
    assert reminders.next_due == 60.0
    assert told(reminders, range(10, 1000), ["a", "b"]) == [
        *((12, "b"), (60, "a"), (70, "b"), (300, "a"), (310, "b"), (900, "a"), (910, "b"))
    ]


def test_late_look() -> None:
    """J-6: what was not looked at for long is told once, not once for each time that was missed."""
    reminders: Reminders[str] = Reminders(2.0)
    assert told(reminders, range(0, 1002, 1000), ["a"]) == [(1000, "a")]
    assert reminders.next_due == 3600.0


def test_end_and_gap() -> None:
    """J-6: what comes and goes within a minute is not told each time; what ended is forgotten."""
    reminders: Reminders[str] = Reminders(2.0)
    assert told(reminders, range(5), ["a"]) == [(2, "a")]
    assert told(reminders, range(5, 30), []) == []
    assert reminders.next_due is None
    assert told(reminders, range(30, 50), ["a"]) == []
    assert told(reminders, range(50, 51 + int(GAP_SECONDS)), []) == []
    assert told(reminders, range(200, 210), ["a"]) == [(202, "a")]


def test_reasons_that_are_told() -> None:
    """J-6: those of room, limits, pauses and broken providers; not those of other pools."""
    assert {ReasonCode.ROOM_CORES, ReasonCode.WAIT_POOL_PAUSED, ReasonCode.WAIT_READY_NODE} <= TOLD
    assert {ReasonCode.PROVIDER_CIRCUIT_OPEN, ReasonCode.ROOM_TENANT, ReasonCode.QUOTA_UNKNOWN} <= TOLD
    assert not {ReasonCode.TURN_OF_LABEL, ReasonCode.WAIT_ORDER, ReasonCode.REQUEST_LOCKED} & TOLD
