# SPDX-License-Identifier: Apache-2.0
"""A daemon of ours with a web server."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import httpx2 as httpx

from tests.support.launcher import DaemonProcess
from tests.support.wait import wait_for


class ServingProcess(DaemonProcess):
    """A daemon with a web server on a free port of this host."""

    def __init__(self, module: str, config: Path) -> None:
        super().__init__([sys.executable, "-m", module], config, config.parent / f"{module}.log", ["-f"])

    @property
    def url(self) -> str:
        """Of the web server; waits until it listens."""

        def found() -> str:
            assert self.running, f"it ended:\n{self.log_text()}"
            match = re.search(r"Web server at (https?://127\.0\.0\.1:\d+)/", self.log_text())
            return match[1] if match else ""

        return wait_for("it listens", found)

    def wait_ready(self) -> str:
        """Waits until it says that it is ready; returns the address."""
        url = self.url
        wait_for("it is ready", lambda: httpx.get(f"{url}/health/ready").status_code == 200)
        return url
