# SPDX-License-Identifier: Apache-2.0
"""Shell scripts in the place of diskimage-builder, for tests of what runs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from nodepool.builder.dib import DibRun
from nodepool.builder.image_files import BuildLog


class ScriptedRun:
    """A `DibRun` of a script.

    :param script: for bash.
    """

    def __init__(
        self,
        directory: Path,
        script: str,
        *,
        variables: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] = lambda line: None,
        trap_seconds: float = 20.0,
    ) -> None:
        self.log_path = directory / "logs" / "build.log"
        self.lines: list[str] = []
        self.session = 0
        self._on_line = on_line
        self._log = BuildLog(self.log_path)
        command = ["bash", "-c", script]
        self.run: DibRun = DibRun(
            command, {**os.environ, **(variables or {})}, self._log, self._line, self._started, trap_seconds
        )

    def log_text(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        self._log.close()

    def _started(self, pid: int) -> None:
        self.session = pid

    def _line(self, line: str) -> None:
        self.lines.append(line)
        self._on_line(line)
