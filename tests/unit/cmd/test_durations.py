# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from nodepool.cmd.app import CommandError
from nodepool.cmd.maintenance import add_end_options, duration, end_of, moment


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


@pytest.mark.parametrize("text", ["999999999w", f"{'9' * 400}d"])
def test_durations_that_no_calendar_has(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is longer than 100 years"):
        duration(text)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is five hours behind UTC."""
    monkeypatch.setenv("TZ", "XXX5")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
def test_moments() -> None:
    """In local time unless an offset says otherwise."""
    assert moment("2999-12-24T18:30") == datetime(2999, 12, 24, 23, 30, tzinfo=UTC).timestamp()
    assert moment("2999-12-24") == datetime(2999, 12, 24, 5, tzinfo=UTC).timestamp()
    assert moment("2999-12-24T18:30+01:00") == datetime(2999, 12, 24, 17, 30, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("text", ["0:00", "12:00", "23:59"])
def test_a_time_without_a_date_is_the_next_one(text: str) -> None:
    now = time.time()
    found = moment(text)
    assert now < found <= now + 86400 + 3600
    assert datetime.fromtimestamp(found, UTC).astimezone().strftime("%H:%M") == text.zfill(5)


@pytest.mark.parametrize("text", ["", "25:00", "tomorrow", "2026-13-01", "2h"])
def test_no_moment(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no moment; write"):
        moment(text)


@pytest.mark.parametrize("arguments", [["--until", "2001-01-01"], ["--for", "0s"]])
def test_an_end_that_is_over(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    add_end_options(parser, "it ends")
    with pytest.raises(CommandError, match=r"--until is in the past|--for is no time at all"):
        end_of(parser.parse_args(arguments), 1e9)


@pytest.mark.parametrize(
    ("arguments", "end"),
    [([], None), (["--for", "1h"], 4600.0), (["--until", "2999-12-24T00:00+00:00"], 32502988800.0)],
)
def test_end(arguments: list[str], end: float | None) -> None:
    parser = argparse.ArgumentParser()
    add_end_options(parser, "it ends")
    assert end_of(parser.parse_args(arguments), 1000.0) == end


def test_not_both() -> None:
    parser = argparse.ArgumentParser()
    add_end_options(parser, "it ends")
    with pytest.raises(SystemExit):
        parser.parse_args(["--for", "1h", "--until", "2999-12-24"])
