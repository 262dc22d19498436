# SPDX-License-Identifier: Apache-2.0
"""Runs scenarios one after the other; in each, one candidate after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from benchmarks.suite.model import FLOOR, Results, Scenario

if TYPE_CHECKING:
    from benchmarks.support.candidates import Candidate
    from benchmarks.support.costs import Costs
    from benchmarks.support.place import Stage


def run_all(
    stage: Stage,
    scenarios: Sequence[Scenario],
    candidates: Sequence[Candidate],
    costs: Costs,
    results: Results,
    quick: bool,
    save: Callable[[], object],
) -> None:
    """Adds rows to ``results``; what fails is noted there and stops nothing else. ``save`` is called after each."""
    for number, scenario in enumerate(scenarios, 1):
        for candidate in candidates:
            if candidate.name != FLOOR or scenario.floor:
                stage.progress.step(f"{number}/{len(scenarios)} {scenario.name}: {candidate.name}")
                _measure(stage, scenario, candidate, results, quick)
        if scenario.limit is not None:
            results.rows.extend(scenario.limit(costs, results.of(scenario.name)))
        save()


def _measure(stage: Stage, scenario: Scenario, candidate: Candidate, results: Results, quick: bool) -> None:
    try:
        results.rows.extend(scenario.run(stage, candidate, scenario.size(quick)))
    except (Exception, AssertionError) as problem:  # noqa: BLE001 - whatever breaks, the other figures are wanted
        text = str(problem).strip().splitlines()
        reason = f"{type(problem).__name__}: {text[0] if text else ''}"
        results.problems[f"{scenario.name}, {candidate.name}"] = reason
        stage.progress.step(f"  failed: {reason}")
