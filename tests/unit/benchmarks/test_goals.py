# SPDX-License-Identifier: Apache-2.0
"""benchmarks.suite.goals: what counts as met."""

from __future__ import annotations

import pytest

from benchmarks.suite.goals import Bound, Goal, Growth, TimesReleased, ratio
from benchmarks.suite.model import OURS, RELEASED
from tests.unit.benchmarks.example import row, rows, scenario


@pytest.mark.parametrize(
    ("goal", "met", "measured"),
    [
        (Bound("cpu", at_most=4), True, "4"),
        (Bound("cpu", at_most=3.9), False, "4"),
        (Bound("rate", at_least=50), True, "50"),
        (Bound("rate", at_least=51), False, "50"),
        (TimesReleased("rate", 5), True, "5.0x"),
        (TimesReleased("rate", 5.1), False, "5.0x"),
        (TimesReleased("cpu", 5), True, "5.0x"),
        (Bound("rate", at_least=1, case="no such case"), None, "not measured"),
    ],
)
def test_verdict(goal: Goal, met: bool | None, measured: str) -> None:
    (verdict,) = goal.judge(scenario(goal), rows())
    assert (verdict.met, verdict.measured) == (met, measured)


def test_without_the_released_package() -> None:
    """What was not measured is neither met nor missed."""
    (verdict,) = TimesReleased("rate", 5).judge(scenario(), [row(OURS, rate=50)])
    assert verdict.met is None


def test_every_case_is_judged() -> None:
    found = [row(OURS, "small", cpu=1), row(OURS, "large", cpu=3)]
    verdicts = Bound("cpu", at_most=2).judge(scenario(), found)
    assert [(verdict.case, verdict.met) for verdict in verdicts] == [("small", True), ("large", False)]


def test_growth() -> None:
    found = [row(OURS, "100", cpu=2), row(OURS, "10000", cpu=2.5), row(RELEASED, "100", cpu=1)]
    (verdict,) = Growth("cpu", "100", "10000", 1.3).judge(scenario(), found)
    assert (verdict.met, verdict.measured) == (True, "1.25x")
    (verdict,) = Growth("cpu", "100", "10000", 1.2).judge(scenario(), found)
    assert verdict.met is False
    (verdict,) = Growth("cpu", "1", "10000", 1.2).judge(scenario(), found)
    assert verdict.met is None


def test_ratio() -> None:
    """Always "how many times better", whatever is better."""
    assert ratio(50, 10, True) == ratio(10, 50, False) == 5
    assert ratio(0, 5, False) is None
    assert ratio(5, None, True) is None
    assert ratio(5, 1, None) is None
