# SPDX-License-Identifier: Apache-2.0
"""What ``nodepool check`` found: a table, and on a terminal lines that are not cut (reference/commands 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TextIO

from nodepool.listing import styles
from nodepool.listing.safe_text import printable
from nodepool.listing.table import Column, Table

if TYPE_CHECKING:
    from nodepool.driver.framework.check_result import CheckResult

_COLOURS: Final = {"ok": styles.GOOD, "warning": styles.WAITING, "failed": styles.BAD}


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
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    console = Console(file=stream, force_terminal=True, markup=False, emoji=False, highlight=False)
    for where, found in results.items():
        console.print(Text(printable(where), "bold"))
        grid = Grid.grid(padding=(0, 2))
        for result in found:
            lines = [f"{result.subject}: {result.text}", *([f"-> {result.remedy}"] if result.remedy else [])]
            shown = Text("\n".join(map(printable, lines)), overflow="fold")
            grid.add_row("", Text(result.status, _COLOURS[result.status]), shown)
        console.print(grid)
