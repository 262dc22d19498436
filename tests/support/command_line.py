# SPDX-License-Identifier: Apache-2.0
"""``nodepool`` as a process, as operators start it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.launcher import ROOT


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

    def __call__(self, *arguments: str, answer: str = "") -> Result:
        process = self.start(*arguments)
        out, err = process.communicate(answer, timeout=120)
        return Result(process.returncode, out, err)
