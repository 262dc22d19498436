# SPDX-License-Identifier: Apache-2.0
"""One move there, back, and there again, in each CI run. ``python -m tests.migration --seeds 1-10`` has more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.seeded_run import seeded_run


@pytest.mark.timeout(1000)
def test_launchers_are_replaced_under_load(tmp_path: Path) -> None:
    """8: nothing is lost, nothing of ours is above a limit, no node is touched while its job runs, nothing stays."""
    report = seeded_run("tests.migration", tmp_path, seconds=900.0, end_seconds=60.0)
    assert report["violations"] == []
    assert report["figures"]["jobs"]["done"] > 0
    assert set(report["figures"]["nodes"]) == {"ours", "released"}
    assert report["figures"]["writes of ours"]["with its lock"] > 0
