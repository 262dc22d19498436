# SPDX-License-Identifier: Apache-2.0
"""How long something took: for people, and in the listings of Nodepool 11."""

from __future__ import annotations

import pytest

from nodepool.model.event import clock, short


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (12000, "3 h 20 min"),
        (86400, "1 d"),
        (86400 * 2 + 4 * 3600 + 59, "2 d 4 h"),
    ],
)
def test_short(seconds: float, text: str) -> None:
    assert short(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "00:00:00:00"), (59.9, "00:00:00:59"), (90061, "01:01:01:01"), (8640000, "100:00:00:00"), (-5, "00:00:00:00")],
)
def test_clock(seconds: float, text: str) -> None:
    """reference/commands 2: ages as DD:HH:MM:SS."""
    assert clock(seconds) == text
