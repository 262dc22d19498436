# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
from datetime import datetime

import pytest

from nodepool.cmd.durations import duration, point_in_time


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("1h30m", 5400), ("2d", 172800), ("1w", 604800), ("0.5h", 1800), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "5 m", "5y", "-5m", "5m!", "1e3s"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no duration; write"):
        duration(text)


def test_point_in_time() -> None:
    today = datetime.now().astimezone()
    assert point_in_time("18:30") == today.replace(hour=18, minute=30, second=0, microsecond=0).timestamp()
    assert point_in_time("2030-01-31T06:00:00+00:00") == 1896069600.0
    assert point_in_time("2030-01-31T06:00") == datetime(2030, 1, 31, 6).astimezone().timestamp()


@pytest.mark.parametrize("text", ["", "soon", "25:00", "12:60", "2030-13-01", "1:2:3:4"])
def test_no_point_in_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no time"):
        point_in_time(text)
