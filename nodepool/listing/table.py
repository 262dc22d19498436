# SPDX-License-Identifier: Apache-2.0
"""A listing as an ASCII table, JSON or CSV (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

FORMATS: Final = ("table", "json", "csv")


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class Column:
    """One column: its header in a table, and its key in JSON and CSV.

    :param show: makes the text in a table of a value that is not null, e.g. of a number with a unit.
    """

    header: str
    key: str
    show: Callable[[Any], str] = _shown


@dataclass(frozen=True)
class Table:
    """Rows of JSON values: text, numbers, booleans, None, lists, objects."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]


def render(table: Table, form: str = "table") -> str:
    """A listing as text, without a line break at the end.

    :param form: one of `FORMATS`.
    """
    if form == "json":
        return _as_json(table)
    if form == "csv":
        return _as_csv(table)
    return _as_table(table)


def age(seconds: float | None) -> str | None:
    """A duration as ``DD:HH:MM:SS``; None when it is not known.

    A negative one, from clocks that differ, is shown as 0.
    """
    if seconds is None:
        return None
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days:02d}:{hour:02d}:{minute:02d}:{second:02d}"


def _as_table(table: Table) -> str:
    from prettytable import PrettyTable

    pretty = PrettyTable([column.header for column in table.columns])
    pretty.align = "l"
    pretty.add_rows(
        [[_cell(column, value) for column, value in zip(table.columns, row, strict=True)] for row in table.rows]
    )
    return pretty.get_string()


def _cell(column: Column, value: Any) -> str:
    if value is None:
        return ""
    text = column.show(value)
    if text.isprintable():
        return text
    # Values come from other programs: no escape sequence of theirs may reach the terminal.
    return "".join(char if char.isprintable() else " " for char in text)


def _as_json(table: Table) -> str:
    import json

    keys = [column.key for column in table.columns]
    # One object a line: readable, and json's fast encoder is only used without an indent.
    lines = [json.dumps(dict(zip(keys, row, strict=True))) for row in table.rows]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


def _as_csv(table: Table) -> str:
    import csv
    import io
    import json

    def cell(value: Any) -> Any:
        if isinstance(value, list):
            return _shown(value)
        return json.dumps(value) if isinstance(value, dict) else value

    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    writer.writerows([cell(value) for value in row] for row in table.rows)
    return output.getvalue().rstrip("\n")
