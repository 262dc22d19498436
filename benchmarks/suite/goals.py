# SPDX-License-Identifier: Apache-2.0
"""Goals as data, and whether rows meet them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.suite.model import OURS, RELEASED, Row, Scenario, cases, find


@dataclass(frozen=True)
class Verdict:
    """Is a goal met?

    :param met: None = cannot be said, something was not measured.
    :param measured: what was found, for people.
    """

    goal: str
    case: str
    met: bool | None
    measured: str


class Goal(Protocol):
    """Something that a scenario must reach."""

    def judge(self, scenario: Scenario, rows: Sequence[Row]) -> list[Verdict]:
        """One verdict a case."""


@dataclass(frozen=True)
class Bound:
    """Our figure is at most, or at least, so much.

    :param case: None = in every case.
    """

    metric: str
    at_most: float | None = None
    at_least: float | None = None
    case: str | None = None

    def judge(self, scenario: Scenario, rows: Sequence[Row]) -> list[Verdict]:
        metric = scenario.metric(self.metric)
        sign, limit = ("<=", self.at_most) if self.at_most is not None else (">=", self.at_least)
        assert limit is not None
        text = f"{metric.title} {sign} {limit:g} {metric.unit}".strip()
        verdicts = []
        for case in _cases(rows, self.case):
            value = _value(rows, OURS, case, self.metric)
            met = None if value is None else (value <= limit if sign == "<=" else value >= limit)
            verdicts.append(Verdict(text, case, met, "not measured" if value is None else f"{value:g}"))
        return verdicts


@dataclass(frozen=True)
class TimesReleased:
    """Our figure is so many times better than that of the released package."""

    metric: str
    factor: float
    case: str | None = None

    def judge(self, scenario: Scenario, rows: Sequence[Row]) -> list[Verdict]:
        metric = scenario.metric(self.metric)
        text = f"{metric.title}: {self.factor:g}x better than released"
        verdicts = []
        for case in _cases(rows, self.case):
            found = ratio(
                _value(rows, OURS, case, self.metric), _value(rows, RELEASED, case, self.metric), metric.more_is_better
            )
            met = None if found is None else found >= self.factor
            verdicts.append(Verdict(text, case, met, "not measured" if found is None else f"{found:.1f}x"))
        return verdicts


@dataclass(frozen=True)
class Growth:
    """Our figure in ``case`` is at most ``factor`` times that in ``base``."""

    metric: str
    base: str
    case: str
    factor: float

    def judge(self, scenario: Scenario, rows: Sequence[Row]) -> list[Verdict]:
        title = scenario.metric(self.metric).title
        text = f"{title} at {self.case} <= {self.factor:g}x that at {self.base}"
        value, base = (_value(rows, OURS, case, self.metric) for case in (self.case, self.base))
        if value is None or not base:
            return [Verdict(text, self.case, None, "not measured")]
        return [Verdict(text, self.case, value <= self.factor * base, f"{value / base:.2f}x")]


def ratio(mine: float | None, other: float | None, more_is_better: bool | None) -> float | None:
    """How many times ``mine`` is better than ``other``; None = cannot be said."""
    if mine is None or other is None or more_is_better is None:
        return None
    better, worse = (mine, other) if more_is_better else (other, mine)
    return better / worse if worse else None


def _cases(rows: Sequence[Row], case: str | None) -> list[str]:
    return cases(rows) if case is None else [case]


def _value(rows: Sequence[Row], candidate: str, case: str, key: str) -> float | None:
    row = find(rows, candidate, case)
    return None if row is None else row.get(key)
