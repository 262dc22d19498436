# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse

import pytest

from nodepool.cmd.durations import duration


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
