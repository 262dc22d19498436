# SPDX-License-Identifier: Apache-2.0
"""A scenario that measures nothing, and rows as it could have brought them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.suite.goals import Goal
from benchmarks.suite.model import LIMIT, OURS, RELEASED, Metric, Row, Scenario

METRICS = (Metric("rate", "requests/s", more_is_better=True, plot=True), Metric("cpu", "CPU", "ms", plot=True))


def scenario(*goals: Goal, **changes: Any) -> Scenario:
    settings: dict[str, Any] = {
        "name": "example",
        "title": "An example",
        "metrics": METRICS,
        "goals": goals,
        "run": lambda stage, candidate, size: [],
        "sizes": {"requests": 100, "hosts": 10},
        "quick": {"requests": 5},
        **changes,
    }
    return Scenario(**settings)


def row(candidate: str, case: str = "", **values: float) -> Row:
    return Row("example", case, candidate, values)


def rows() -> Sequence[Row]:
    return [row(RELEASED, rate=10, cpu=20), row(OURS, rate=50, cpu=4), row(LIMIT, rate=100)]
