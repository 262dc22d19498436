# SPDX-License-Identifier: Apache-2.0
"""Prints results side by side, with ratios, and writes them as JSON."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class Row(Protocol):
    """A result: a dataclass with at least these fields."""

    @property
    def candidate(self) -> str: ...

    @property
    def scenario(self) -> str: ...

    @property
    def failed(self) -> int: ...

    def as_dict(self) -> dict[str, Any]: ...


class Column(NamedTuple):
    """A column of the table.

    :param fields: of the result, joined by "/".
    :param more_is_better: for the ratio; None = there is no ratio.
    """

    title: str
    fields: tuple[str, ...]
    more_is_better: bool | None = False


def table(results: Sequence[Row], base: str, columns: Sequence[Column], note: str) -> str:
    """A text table; candidates other than ``base`` get a line of ratios ("x times better than base")."""
    rows = [["scenario", "candidate", "failed", *(column.title for column in columns)]]
    for scenario in dict.fromkeys(result.scenario for result in results):
        mine = [result for result in results if result.scenario == scenario]
        reference = next((result for result in mine if result.candidate == base), None)
        for result in mine:
            rows.append(
                [scenario, result.candidate, str(result.failed), *(_value(result, column) for column in columns)]
            )
            if reference and result is not reference:
                rows.append(
                    ["", f"  better than {base}", "", *(_ratio(result, reference, column) for column in columns)]
                )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * sum(widths), *lines[1:], "", note])


def write_json(path: Path, results: Sequence[Row], settings: dict[str, object]) -> None:
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


def _value(result: Row, column: Column) -> str:
    values = [getattr(result, field) for field in column.fields]
    return "/".join("" if value is None else f"{value:g}" for value in values)


def _ratio(result: Row, reference: Row, column: Column) -> str:
    if column.more_is_better is None:
        return ""
    mine, other = (getattr(row, column.fields[0]) for row in (result, reference))
    better, worse = (mine, other) if column.more_is_better else (other, mine)
    return f"{better / worse:.1f}x" if better and worse else ""
