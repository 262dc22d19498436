# SPDX-License-Identifier: Apache-2.0
"""Results as a JSON file, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from benchmarks.suite.model import Results, Row, Scenario
from benchmarks.suite.report import verdicts

FILE_NAME = "results.json"


def write(directory: Path, results: Results, scenarios: Iterable[Scenario]) -> Path:
    """Writes ``results.json``; returns its path. An older one is replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    document = {
        **asdict(results),
        "goals": {
            scenario.name: [asdict(verdict) for verdict in verdicts(scenario, results.of(scenario.name))]
            for scenario in scenarios
            if results.of(scenario.name)
        },
    }
    path = directory / FILE_NAME
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def load(path: Path) -> Results:
    """What `write` wrote. Goals are judged anew. :raises OSError, ValueError, KeyError: it is not such a file."""
    document = json.loads(path.read_text(encoding="utf-8"))
    rows = [Row(**row) for row in document["rows"]]
    return Results(document["settings"], document["costs"], rows, document["problems"])
