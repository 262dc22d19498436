# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from nodepool.listing.table import duration, moment, since, until

#: 2026-11-23 12:00:00 UTC
NOON = 1795435200.0


def test_moments() -> None:
    assert moment(NOON - 60, NOON) == "11:59:00"
    assert moment(NOON - 86400, NOON) == "2026-11-22 12:00:00"


@pytest.mark.parametrize(("at", "year"), [(1e300, "9998"), (-1e300, "1970")])
def test_moments_that_no_calendar_has(at: float, year: str) -> None:
    """Records of other programs may have any number; the listing is shown all the same."""
    assert moment(at, NOON).startswith(year)


def test_since_and_until() -> None:
    assert since(NOON)(NOON - 7200) == "10:00:00 (2 h)"
    assert since(NOON)(0) == ""
    assert until(NOON)(NOON + 12) == "in 12 s"
    assert until(NOON)(NOON - 1) == "now"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("2d", 172800), ("1w", 604800)]
)
def test_written_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "5m ", "1e3s", "5000w5000d9", "nan"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration; write"):
        duration(text)


def test_too_long_durations() -> None:
    with pytest.raises(ValueError, match="is longer than 100 years"):
        duration("99999d")
