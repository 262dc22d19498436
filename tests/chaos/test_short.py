# SPDX-License-Identifier: Apache-2.0
"""One short run under all kinds of faults, in each CI run. ``tox -e chaos`` has many and longer ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.launcher import ROOT
from tests.support.process import ChildProcess

SEED = 1
SECONDS = 45.0
#: How long the whole run may take, also on a busy machine; and its end when it takes longer.
DEADLINE_SECONDS, END_SECONDS = 245.0, 40.0


@pytest.mark.timeout(300)
def test_nothing_is_lost_and_nothing_leaks(tmp_path: Path) -> None:
    """F-1, F-2, F-4, F-5: launchers, ZooKeeper, cloud and clients fail, and all invariants hold.

    In a process of its own: each connection that Zuul's Kazoo fails to make leaves a socket to the garbage collector.
    """
    command = [sys.executable, "-m", "tests.chaos", "--seeds", str(SEED), "--seconds", str(SECONDS)]
    run = ChildProcess([*command, "--directory", str(tmp_path)], tmp_path / "output", cwd=ROOT)
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
    assert report["figures"]["writes of launchers"]["with its lock"] > 0
    assert status == 0
