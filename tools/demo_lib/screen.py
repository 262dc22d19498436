# SPDX-License-Identifier: Apache-2.0
"""What the person at the terminal sees: numbered steps, and tables when they changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from demo_lib.processes import run

#: Ages move all the time; a table in which nothing else moved is not worth showing again.
AGE = re.compile(r"\d\d:\d\d:\d\d:\d\d")


class Screen:
    """Print the story, one numbered step after the other."""

    def __init__(self) -> None:
        self._step = 0

    def step(self, text: str) -> None:
        """Begin the next step."""
        self._step += 1
        print(f"\n{self._step}. {text}", flush=True)

    def note(self, text: str) -> None:
        """Something to know about the present step."""
        print(f"   {text}", flush=True)


class Tables:
    """The tables of the ``nodepool`` command.

    :param command: the command with its global options.
    """

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._command = list(command)
        self._last: dict[str, str] = {}

    def show(self, *names: str) -> None:
        """Print each of these tables that looks different from the last time. Blocks. Raises DemoError."""
        for name in names:
            table = run([*self._command, name]).rstrip()
            comparable = AGE.sub("", table)
            if self._last.get(name) == comparable:
                continue
            self._last[name] = comparable
            print(f"\n   $ nodepool {name}")
            print("\n".join("   " + line for line in table.splitlines()), flush=True)
