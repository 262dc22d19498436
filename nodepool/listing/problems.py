# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a configuration, as text, as JSON, and as GitHub's checks want it.

Then what ``nodepool check`` found, and which launchers serve a file. Nothing here reads anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

from nodepool.config.problems import Problem, Severity
from nodepool.listing import table
from nodepool.listing.table import Column, Table, printable
from nodepool.listing.terminal import console_of
from nodepool.model.config_keys import names_a_secret

if TYPE_CHECKING:
    from nodepool.driver.framework.cloud_errors import CheckResult
    from nodepool.plan.config_diff import ServedConfig

_RED, _YELLOW, _BOLD, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m"
#: Longest line of a file that is shown.
_MAX_LINE: Final = 160

#: Reads one line of a file: path and number, from 1 -> its text; None = there is none.
ReadLine = Callable[[str, int], str | None]


def is_error(problem: Problem) -> bool:
    """Is the file refused for it?"""
    return problem.severity is not Severity.WARNING


def _kind(problem: Problem) -> str:
    return "error" if is_error(problem) else "warning"


def as_text(problem: Problem) -> str:
    """``file:line:column: key: text``; a warning says that it is one."""
    text = str(problem)
    if is_error(problem):
        return text
    return f"{text.removesuffix(problem.message)}warning: {problem.message}"


def as_frame(problem: Problem, read_line: ReadLine, *, colour: bool) -> str:
    """As `as_text`, with the line of the file and a caret below the place. What may be a secret is not shown."""
    paint = (_YELLOW if _kind(problem) == "warning" else _RED) if colour else ""
    plain = _PLAIN if paint else ""
    head = as_text(problem)
    if paint:
        place = head[: len(head) - len(problem.message)]
        head = f"{_BOLD}{place}{plain}{paint}{problem.message}{plain}"
    line = "" if problem.line is None else (read_line(problem.file, problem.line) or "").rstrip("\r\n")
    if not line.strip() or names_a_secret((problem.key, line)):
        return head
    shown = printable(line)[:_MAX_LINE]
    number = str(problem.line)
    column = (problem.column or len(shown) - len(shown.lstrip()) + 1) - 1
    if column >= len(shown):
        return head
    # The key that the text begins with.
    text = shown[column:]
    width = max(1, len(text.partition(":")[0] if ":" in text else text.strip()))
    caret = f"{paint}{'^' * width}{plain}"
    return f"{head}\n  {number} | {shown}\n  {' ' * len(number)} | {' ' * column}{caret}"


def as_json(problems: Sequence[Problem]) -> str:
    """A list of objects."""
    keys = ("file", "line", "column", "key")
    records = [
        {**{key: getattr(problem, key) for key in keys}, "severity": _kind(problem), "message": problem.message}
        for problem in problems
    ]
    return json.dumps(records, indent=2)


def as_github(problem: Problem) -> str:
    """A workflow command, which GitHub shows beside the line."""
    place = [("file", problem.file), ("line", problem.line), ("col", problem.column), ("title", problem.key)]
    given = ",".join(f"{name}={_property(str(value))}" for name, value in place if value)
    return f"::{_kind(problem)} {given}::{_data(problem.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# What ``nodepool check`` found: a table, and on a terminal lines that are not cut (reference/commands 2).

_COLOURS: Final = {"ok": table.GOOD, "warning": table.WAITING, "failed": table.BAD}


def check_table(results: Mapping[str, Sequence[CheckResult]]) -> Table:
    """A row for each result.

    :param results: where it was looked at, such as ``cloud-1`` -> what was found.
    """
    columns = (
        Column("Result", "result", style=lambda value: _COLOURS.get(value, "")),
        Column("Where", "where"),
        Column("What", "subject"),
        Column("Found", "text", least=40),
        Column("Remedy", "remedy", least=30),
    )
    rows: list[list[Any]] = [
        [result.status, where, result.subject, result.text, result.remedy or None]
        for where, found in results.items()
        for result in found
    ]
    return Table(columns, rows)


def print_checks(results: Mapping[str, Sequence[CheckResult]], stream: TextIO) -> None:
    """Print results for people: texts are wrapped, never cut, because each says what to do.

    :param results: as for `check_table`.
    :param stream: a terminal.
    """
    from rich.table import Table as Grid
    from rich.text import Text

    console = console_of(stream)
    for where, found in results.items():
        console.print(Text(printable(where), "bold"))
        grid = Grid.grid(padding=(0, 2))
        for result in found:
            lines = [f"{result.subject}: {result.text}", *([f"-> {result.remedy}"] if result.remedy else [])]
            shown = Text("\n".join(map(printable, lines)), overflow="fold")
            grid.add_row("", Text(result.status, _COLOURS[result.status]), shown)
        console.print(grid)


# Which launchers serve a configuration file, in words (reference/commands 2).


def served_line(found: ServedConfig, now: float) -> str:
    """What one launcher serves, and what to do if that is not the file. ``now``: seconds since the epoch."""
    who = f"launcher {found.launcher}" + (f" ({found.pid})" if found.pid is not None else "")
    if found.serves is None:
        return printable(f"{who} does not report what it serves, like all launchers of Nodepool 11")
    loaded = "" if found.loaded is None else f", loaded {table.since(now)(found.loaded)}"
    why = ""
    if found.refused:
        at = "" if found.refused_at is None else f" {table.since(now)(found.refused_at)}"
        why = f"; its last reload{at} failed: {found.refused}"
    elif not found.serves:
        why = f"; it loads {found.file or 'its file'} by itself when that changes there"
    what = "serves this file" if found.serves else f"serves another file ({found.digest})"
    return printable(f"{who} {what}{loaded}{why}")
