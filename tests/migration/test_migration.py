# SPDX-License-Identifier: Apache-2.0
"""One move there, back, and there again, in each CI run. ``python -m tests.migration --seeds 1-10`` has more."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.launcher import ROOT
from tests.support.process import ChildProcess

SEED = 1
#: How long the whole run may take, also on a busy machine; and its end when it takes longer.
DEADLINE_SECONDS, END_SECONDS = 500.0, 60.0


@pytest.mark.timeout(600)
def test_launchers_are_replaced_under_load(tmp_path: Path) -> None:
    """8: nothing is lost, nothing of ours is above a limit, no node is touched while its job runs, nothing stays.

    In a process of its own: each connection that Zuul's Kazoo fails to make leaves a socket to the garbage collector.
    """
    command = [sys.executable, "-m", "tests.migration", "--seeds", str(SEED), "--directory", str(tmp_path)]
    run = ChildProcess(command, tmp_path / "output", cwd=ROOT)
    run.start()
    try:
        status = run.wait(DEADLINE_SECONDS)
    finally:
        # In order: it ends its own processes.
        run.stop(seconds=END_SECONDS)
        print(run.log_text())
    report = json.loads((tmp_path / f"seed-{SEED}" / "report.json").read_text(encoding="utf-8"))
    assert report["violations"] == []
    assert report["figures"]["jobs"]["done"] > 0
    assert set(report["figures"]["nodes"]) == {"ours", "released"}
    assert report["figures"]["writes of ours"]["with its lock"] > 0
    assert status == 0
