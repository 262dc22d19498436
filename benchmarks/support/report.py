# SPDX-License-Identifier: Apache-2.0
"""Prints results side by side, with ratios, and writes them as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path

from benchmarks.support.scenarios import Result

#: Column title, field, and whether more is better (for the ratio).
COLUMNS = (
    ("p50 ms", "p50_ms", False),
    ("p99 ms", "p99_ms", False),
    ("req/s", "rate", True),
    ("CPU ms", "cpu_ms", False),
    ("load CPU", "client_cpu_ms", False),
    ("in", "received", False),
    ("out", "sent", False),
    ("packets", "packets", False),
    ("launcher in/out", None, False),
    ("load in/out", None, False),
)
NOTE = """\
Per request: CPU ms is the launcher's, load CPU the Zuul client's. Packets as ZooKeeper counts them, load and
launcher together: "in" are requests to the server, "out" its answers and watch events, "packets" their sum."""


def table(results: Sequence[Result], base: str) -> str:
    """A text table; candidates other than ``base`` get a line of ratios ("x times better than base")."""
    rows = [["scenario", "candidate", "failed", *(title for title, _, _ in COLUMNS)]]
    for scenario in dict.fromkeys(result.scenario for result in results):
        mine = [result for result in results if result.scenario == scenario]
        reference = next((result for result in mine if result.candidate == base), None)
        for result in mine:
            rows.append([scenario, result.candidate, str(result.failed), *_values(result)])
            if reference and result is not reference:
                rows.append(["", f"  better than {base}", "", *_ratios(result, reference)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * sum(widths), *lines[1:], "", NOTE])


def write_json(path: Path, results: Sequence[Result], settings: dict[str, object]) -> None:
    """Writes settings and results to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "machine": {"python": platform.python_version(), "processors": _processors()},
        "settings": settings,
        "results": [result.as_dict() for result in results],
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _processors() -> int:
    import os

    return len(os.sched_getaffinity(0))


def _values(result: Result) -> list[str]:
    return [
        *(f"{getattr(result, field):g}" for _, field, _ in COLUMNS if field),
        f"{result.launcher_received:g}/{result.launcher_sent:g}",
        f"{result.client_received:g}/{result.client_sent:g}",
    ]


def _ratios(result: Result, reference: Result) -> list[str]:
    ratios = []
    for _, field, more in COLUMNS:
        mine, other = (getattr(result, field), getattr(reference, field)) if field else (0, 0)
        better, worse = (mine, other) if more else (other, mine)
        ratios.append(f"{better / worse:.1f}x" if worse else "")
    return ratios
