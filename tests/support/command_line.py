# SPDX-License-Identifier: Apache-2.0
"""``nodepool`` as a process, as operators start it, and in the process of the tests."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nodepool.cmd.cli import main
from tests.support.launcher import ROOT
from tests.support.logging_state import kept_logging
from tests.support.terminal import without_escapes


@dataclass
class Result:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """Cells of an ASCII table, without its headers."""
        lines = [line for line in self.out.splitlines() if line.startswith("|")]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


@dataclass
class CommandLine:
    """Runs ``nodepool -c config`` with arguments; ``start`` does not wait for its end.

    :param config: the configuration file.
    """

    config: Path
    environment: dict[str, str] = field(default_factory=lambda: {**os.environ, "PYTHONPATH": str(ROOT)})

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "nodepool.cmd.cli", "-c", str(self.config), *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=self.environment, cwd="/", **options
        )

    def on_terminal(self, *arguments: str, columns: int = 120, until: Callable[[str], bool] | None = None) -> Result:
        """Runs a command as an operator at a terminal without colours does; ``out`` is all that stands on it then.

        :param until: Ctrl-C is pressed when this says so of what was written.
        """
        above, terminal = pty.openpty()
        size = {"COLUMNS": str(columns), "LINES": "100", "TERM": "xterm", "NO_COLOR": "1", "TZ": "UTC"}
        command = [sys.executable, "-m", "nodepool.cmd.cli", "-c", str(self.config), *arguments]
        process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env={**self.environment, **size}, cwd="/"
        )
        os.close(terminal)
        written = b""
        # Linux says EIO when the last one has closed it.
        with contextlib.suppress(OSError), open(above, "rb", buffering=0) as stream:
            while part := stream.read(65536):
                written += part
                if until is not None and until(written.decode(errors="replace")):
                    process.send_signal(signal.SIGINT)
                    until = None
        status = process.wait(60)
        return Result(status, without_escapes(written.decode()).replace("\r\n", "\n"), "")

    def __call__(self, *arguments: str, answer: str = "") -> Result:
        process = self.start(*arguments)
        out, err = process.communicate(answer, timeout=120)
        return Result(process.returncode, out, err)

    def within(self, *arguments: str, answer: str = "") -> Result:
        """The same in this process. A process of its own takes a third of a second of the processor."""
        out, err = io.StringIO(), io.StringIO()
        redirected = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
        with pytest.MonkeyPatch.context() as patch, kept_logging(), redirected[0], redirected[1]:
            patch.setattr(sys, "stdin", io.StringIO(answer))
            for name, value in self.environment.items():
                patch.setenv(name, value)
            try:
                status = main(["-c", str(self.config), *arguments])
            except SystemExit as end:
                status = int(end.code or 0)
        return Result(status, out.getvalue(), err.getvalue())
