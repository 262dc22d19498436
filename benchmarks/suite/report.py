# SPDX-License-Identifier: Apache-2.0
"""A text table of results: figures side by side, ratios, the distance to the limit, and which goals are met. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.suite.goals import Verdict, ratio
from benchmarks.suite.model import LIMIT, OURS, RELEASED, Results, Row, Scenario, cases, find

WORDS = {True: "met", False: "NOT MET", None: "?"}


def report(results: Results, scenarios: Iterable[Scenario]) -> str:
    """The tables of all scenarios that have results."""
    parts = [costs_text(results)]
    for scenario in scenarios:
        rows = results.of(scenario.name)
        problems = [
            f"  {name}: {text}" for name, text in results.problems.items() if name.startswith(f"{scenario.name}, ")
        ]
        if rows or problems:
            parts.append("\n".join([f"{scenario.name}: {scenario.title}", *_scenario(scenario, rows), *problems]))
    return "\n\n".join(parts)


def costs_text(results: Results) -> str:
    """What limits are made of."""
    costs = ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in results.costs.items())
    return f"Measured without a launcher: {costs}"


def _scenario(scenario: Scenario, rows: Sequence[Row]) -> list[str]:
    metrics = [metric for metric in scenario.metrics if any(row.get(metric.key) is not None for row in rows)]
    cells = [["", *(metric.heading for metric in metrics)]]
    for case in cases(rows):
        for row in [row for row in rows if row.case == case]:
            name = f"{case} {row.candidate}".strip()
            cells.append([name, *(_number(row.get(metric.key)) for metric in metrics)])
        for name, other in (("x better than released", RELEASED), ("x the limit", LIMIT)):
            ratios = [
                _times(scenario, find(rows, OURS, case), find(rows, other, case), metric.key, other)
                for metric in metrics
            ]
            if any(ratios):
                cells.append([f"  {name}", *ratios])
    lines = [f"  {line}" for line in _aligned(cells)]
    if scenario.limit_note and any(row.candidate == LIMIT for row in rows):
        lines.append(f"  limit: {scenario.limit_note}")
    return [*lines, *(f"  {verdict_text(verdict)}" for verdict in verdicts(scenario, rows))]


def verdicts(scenario: Scenario, rows: Sequence[Row]) -> list[Verdict]:
    """One for each goal and case."""
    return [verdict for goal in scenario.goals for verdict in goal.judge(scenario, rows)]


def verdict_text(verdict: Verdict) -> str:
    """One line, e.g. ``goal p50 <= 40 ms: 6.9, met``."""
    case = f" [{verdict.case}]" if verdict.case else ""
    return f"goal {verdict.goal}{case}: {verdict.measured}, {WORDS[verdict.met]}"


def summary(results: Results, scenarios: Iterable[Scenario]) -> str:
    """How many goals are met, and those that are not."""
    found = [(s.name, v) for s in scenarios if results.of(s.name) for v in verdicts(s, results.of(s.name))]
    met = sum(verdict.met is True for _, verdict in found)
    missed = [f"  {name}: {verdict_text(verdict)}" for name, verdict in found if verdict.met is not True]
    return "\n".join([f"{met} of {len(found)} goals met", *missed])


def _times(scenario: Scenario, ours: Row | None, other: Row | None, key: str, name: str) -> str:
    """How many times better than ``other``; than the limit we are worse, and it is shown that way round."""
    better = scenario.metric(key).more_is_better
    found = ratio(ours.get(key), other.get(key), better) if ours and other else None
    if not found:
        return ""
    return f"{1 / found:.2f}" if name == LIMIT else f"{found:.1f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return [
        "  ".join(
            cell.ljust(width) if not number else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
