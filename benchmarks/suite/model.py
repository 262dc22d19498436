# SPDX-License-Identifier: Apache-2.0
"""What a scenario is, and what it measures. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from benchmarks.suite.goals import Goal
    from benchmarks.support.candidates import Candidate
    from benchmarks.support.costs import Costs
    from benchmarks.support.place import Stage

#: Names of candidates. The limit is calculated, the floor is a stand-in for a launcher that shows what the load costs.
OURS: Final = "ours"
RELEASED: Final = "released"
FLOOR: Final = "floor"
LIMIT: Final = "limit"


@dataclass(frozen=True)
class Metric:
    """One figure of a row.

    :param key: in `Row.values`.
    :param unit: shown with the title, "" = none.
    :param more_is_better: None = neither; there is no ratio.
    :param plot: is it worth a bar?
    """

    key: str
    title: str
    unit: str = ""
    more_is_better: bool | None = False
    plot: bool = False

    @property
    def heading(self) -> str:
        return f"{self.title} {self.unit}".strip()


@dataclass(frozen=True)
class Row:
    """What one candidate did in one case of a scenario.

    :param case: e.g. the length of a backlog; "" if there is only one.
    :param values: by key of the metric; what was not measured is not there.
    """

    scenario: str
    case: str
    candidate: str
    values: Mapping[str, float]

    def get(self, key: str) -> float | None:
        return self.values.get(key)


@dataclass(frozen=True)
class Scenario:
    """One kind of work.

    :param run: measures one candidate and returns a row for each case.
    :param sizes: what `run` needs to know, for a full run and a quick one.
    :param floor: can the stand-in do this work?
    :param limit: rows of candidate `LIMIT` from the measured costs and the other rows.
    :param limit_note: how the limit is calculated.
    :param missing: what the machine lacks for it, "" = nothing. The scenario is left out then unless it is named.
    :param series: the cases are lengths or counts: drawn as lines over them.
    """

    name: str
    title: str
    metrics: Sequence[Metric]
    goals: Sequence[Goal]
    run: Callable[[Stage, Candidate, Mapping[str, Any]], list[Row]]
    sizes: Mapping[str, Any]
    quick: Mapping[str, Any]
    floor: bool = False
    limit: Callable[[Costs, Sequence[Row]], list[Row]] | None = None
    limit_note: str = ""
    series: bool = False
    missing: Callable[[], str] | None = None

    def size(self, quick: bool) -> Mapping[str, Any]:
        """Sizes of a run; a quick one changes some of those of a full one."""
        return {**self.sizes, **self.quick} if quick else self.sizes

    def metric(self, key: str) -> Metric:
        """:raises KeyError: there is none of that key."""
        for metric in self.metrics:
            if metric.key == key:
                return metric
        raise KeyError(f"scenario {self.name} has no metric {key}")


@dataclass(frozen=True)
class Results:
    """All that a run brought.

    :param settings: how it was called, and on what.
    :param costs: what one write, one read and the like cost in this run.
    :param problems: scenario and candidate -> why there is no row.
    """

    settings: Mapping[str, Any]
    costs: Mapping[str, float]
    rows: list[Row] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)

    def of(self, scenario: str) -> list[Row]:
        return [row for row in self.rows if row.scenario == scenario]


def find(rows: Sequence[Row], candidate: str, case: str) -> Row | None:
    """The row of a candidate in a case."""
    return next((row for row in rows if (row.candidate, row.case) == (candidate, case)), None)


def cases(rows: Sequence[Row]) -> list[str]:
    """Cases in the order in which they were measured."""
    return list(dict.fromkeys(row.case for row in rows))
