# SPDX-License-Identifier: Apache-2.0
"""One short run under all kinds of faults, in each CI run. ``tox -e chaos`` has many and longer ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.seeded_run import seeded_run

FAULT_SECONDS = 45.0
#: How long the whole run may take, also on a busy machine; and its end when it takes longer.
DEADLINE_SECONDS, END_SECONDS = 400.0, 40.0


@pytest.mark.timeout(460)
def test_nothing_is_lost_and_nothing_leaks(tmp_path: Path) -> None:
    """F-1, F-2, F-4, F-5: launchers, ZooKeeper, cloud and clients fail, and all invariants hold."""
    options = ["--seconds", str(FAULT_SECONDS)]
    report = seeded_run("tests.chaos", 1, tmp_path, options=options, seconds=DEADLINE_SECONDS, end_seconds=END_SECONDS)
    assert report["violations"] == []
    assert report["figures"]["jobs"]["done"] > 0
    assert report["figures"]["writes of launchers"]["with its lock"] > 0
