# SPDX-License-Identifier: Apache-2.0
"""A run of ``python -m tests.chaos`` or ``tests.migration`` with one seed, as a test does it.

In a process of its own: each connection that Zuul's Kazoo fails to make leaves a socket to the garbage collector.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.support.launcher import ROOT
from tests.support.process import ChildProcess


def seeded_run(
    module: str, directory: Path, *options: str, seconds: float = 400.0, end_seconds: float = 40.0
) -> dict[str, Any]:
    """Blocks until the run is over, prints what it says, and returns its report.

    :param options: more arguments.
    :param seconds: most time that it may take, also on a busy machine.
    :param end_seconds: the same for its end after that.
    :raises AssertionError: it failed without a violation. :raises subprocess.TimeoutExpired: it took too long.
    """
    command = [sys.executable, "-m", module, "--seeds", "1", "--directory", str(directory), *options]
    run = ChildProcess(command, directory / "output", cwd=ROOT)
    run.start()
    try:
        status = run.wait(seconds)
    finally:
        # In order: it ends its own processes.
        run.stop(seconds=end_seconds)
        print(run.log_text())
    report: dict[str, Any] = json.loads((directory / "seed-1" / "report.json").read_text(encoding="utf-8"))
    assert status == (1 if report["violations"] else 0), f"exit status {status}"
    return report
