# SPDX-License-Identifier: Apache-2.0
"""A stream that is a terminal, and what stands on it; a shell at a terminal, for what the tab key does."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import select
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.support.wait import wait_for

_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class TerminalStream(io.TextIOWrapper):
    """In memory; ``rich`` takes its size from the variables COLUMNS and LINES."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._bytes = io.BytesIO()
        super().__init__(self._bytes, encoding=encoding, errors="backslashreplace", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def raw_text(self) -> str:
        """All that was written, with its escape sequences."""
        return self._bytes.getvalue().decode(self.encoding)

    @property
    def lines(self) -> list[str]:
        """All that was written, as lines without escape sequences."""
        return without_escapes(self.raw_text).splitlines()


def without_escapes(text: str) -> str:
    """What a person sees of a text for a terminal that was written from top to bottom."""
    return _ESCAPE.sub("", text)


#: Interactive, without files of the user.
_COMMANDS: Final = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}


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
def shell_on_terminal(
    shell: str, script: Path, program: str, more: Mapping[str, str] = MappingProxyType({})
) -> Iterator[ShellTerminal]:
    """Start bash or zsh that has read a script; a function with the name of the program only prints its arguments.

    :param more: variables of its environment.
    """
    above, terminal = pty.openpty()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(script.parent),
        "TERM": "xterm",
        "COLUMNS": "200",
        "PS1": "$ ",
        **more,
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
