# SPDX-License-Identifier: Apache-2.0
"""A daemon of ours with a web server."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import httpx2 as httpx

from tests.support.launcher import ROOT
from tests.support.process import ChildProcess
from tests.support.wait import wait_for


class ServingProcess(ChildProcess):
    """A daemon with a web server on a free port of this host."""

    def __init__(self, module: str, config: Path) -> None:
        command = [sys.executable, "-m", module, "-c", str(config), "-f"]
        super().__init__(command, config.parent / f"{module}.log", env={**os.environ, "PYTHONPATH": str(ROOT)})

    @property
    def url(self) -> str:
        """Of the web server; waits until it listens."""

        def found() -> re.Match[str] | None:
            assert self.running, f"it ended:\n{self.log_text()}"
            return re.search(r"Web server at (https?://127\.0\.0\.1:\d+)/", self.log_text())

        wait_for("it listens", lambda: found() is not None)
        match = found()
        assert match is not None
        return match[1]

    def wait_ready(self) -> str:
        """Waits until it says that it is ready; returns the address."""
        url = self.url
        wait_for("it is ready", lambda: httpx.get(f"{url}/health/ready").status_code == 200)
        return url
