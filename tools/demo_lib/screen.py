# SPDX-License-Identifier: Apache-2.0
"""What the person at the terminal sees: numbered steps, and tables when they changed."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from demo_lib.processes import run, run_on_terminal

#: Ages move all the time; a table in which nothing else moved is not worth showing again.
AGE: Final = re.compile(r"\d\d:\d\d:\d\d:\d\d|\b\d+(\.\d+)? (s|min|h)\b|\x1b\[[0-9;]*m| +")
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
#: In front of notes and tables.
INDENT: Final = "   "


class Screen:
    """Print the story, one numbered step after the other. On a terminal no line is wider than it."""

    def __init__(self) -> None:
        self._step = 0

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._step += 1
        begin = f"{self._step}. "
        print(f"\n{_wrapped(text, begin, ' ' * len(begin))}", flush=True)

    def note(self, text: str) -> None:
        """Something to know about the present step."""
        print(_wrapped(text, INDENT, INDENT), flush=True)


def _wrapped(text: str, first: str, others: str) -> str:
    width = terminal_columns()
    if width is None:
        return first + text
    # Paths and commands stay in one piece: they are copied.
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def _fitted(line: str, columns: int | None) -> str:
    """A line of a table, or a sentence of ``explain``, which goes on below its beginning."""
    plain = COLOUR.sub("", line)
    if columns is None or len(INDENT + plain) <= columns:
        return INDENT + line
    # A few of them are not worth the trouble to keep their colours.
    line = plain
    begin = INDENT + line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.strip(), columns, initial_indent=begin, subsequent_indent=begin + "  ", break_on_hyphens=False
    )


def terminal_columns() -> int | None:
    """The width of the terminal; None = standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


class Tables:
    """The tables of the ``nodepool`` command.

    :param command: the command with its global options.
    """

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._command = list(command)
        self._last: dict[str, str] = {}

    def show(self, *names: str) -> None:
        """Print each of these tables that looks different from the last time. Blocks. Raises DemoError.

        :param names: commands with their arguments, e.g. ``"list"``.
        """
        columns = terminal_columns()
        for name in names:
            command = [*self._command, *name.split()]
            if columns is None:
                table = run(command).rstrip()
            else:
                table = run_on_terminal(command, max(40, columns - len(INDENT))).rstrip()
            comparable = AGE.sub("", table)
            if self._last.get(name) == comparable:
                continue
            self._last[name] = comparable
            print(f"\n{INDENT}$ nodepool {name}")
            print("\n".join(_fitted(line, columns) for line in table.splitlines()), flush=True)

    def read(self, name: str) -> str:
        """The output of one of these commands, which is not printed. Blocks. Raises DemoError."""
        return run([*self._command, *name.split()])
