# SPDX-License-Identifier: Apache-2.0
"""A shell on a terminal: somebody types, with the Tab key, and the program that is started says what it got."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.terminal import without_escapes
from tests.support.wait import wait_for

#: Interactive, without files of the user.
_COMMANDS = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}


@dataclass
class ShellTerminal:
    """One shell; see `shell_on_terminal`.

    :param end: our end of the terminal.
    """

    end: int
    seen: str = ""

    def arguments(self, typed: str) -> list[str]:
        """The arguments of the program when a line is typed that starts it. The line break is added."""
        mark = f"<{len(self.seen)}>"
        os.write(self.end, f"{typed}\n".encode())
        # The shell reads this when the line before has come to its end.
        os.write(self.end, f"echo '{mark[:1]}''{mark[1:]}'\n".encode())
        before = len(self.seen)
        wait_for(f"the shell has run {typed!r}", lambda: self._read(before, mark))
        told = [line for line in without_escapes(self.seen[before:]).splitlines() if line.startswith("got:")]
        assert len(told) == 1, self.seen[before:]
        return told[0].split()[1:]

    def _read(self, before: int, mark: str) -> bool:
        while select.select([self.end], [], [], 0)[0]:
            self.seen += os.read(self.end, 65536).decode(errors="replace").replace("\r", "\n")
        return mark in self.seen[before:]


@contextlib.contextmanager
def shell_on_terminal(shell: str, script: Path, program: str) -> Iterator[ShellTerminal]:
    """Start a shell that has read a script; a program of this name only prints its arguments."""
    above, terminal = pty.openpty()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(script.parent),
        "TERM": "xterm",
        "COLUMNS": "200",
        "PS1": "$ ",
    }
    process = subprocess.Popen(
        _COMMANDS[shell],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
        cwd=script.parent,
        start_new_session=True,
    )
    os.close(terminal)
    try:
        made = ShellTerminal(above)
        os.write(above, f". '{script}'; {program}() {{ echo got: \"$@\"; }}\n".encode())
        # Nothing is completed before the shell asks for a line by itself.
        assert made.arguments(f"{program} ready") == ["ready"]
        yield made
    finally:
        process.kill()
        process.wait(60)
        os.close(above)
