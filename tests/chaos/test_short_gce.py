# SPDX-License-Identifier: Apache-2.0
"""One short run with Google Compute Engine as the cloud under all kinds of faults; ``--cloud gce`` has more of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.test_short import DEADLINE_SECONDS, END_SECONDS
from tests.support.seeded_run import seeded_run

FAULT_SECONDS = 20.0


@pytest.mark.timeout(300)
def test_nothing_is_lost_and_nothing_leaks(tmp_path: Path) -> None:
    """F-1, F-2, F-4, F-5; CM-7, CM-8, GC-5: lost answers, lag, operations that fail, kills; all invariants hold."""
    options = ["--cloud", "gce", "--seconds", str(FAULT_SECONDS)]
    report = seeded_run("tests.chaos", 1, tmp_path, options=options, seconds=DEADLINE_SECONDS, end_seconds=END_SECONDS)
    assert report["violations"] == []
    assert report["figures"]["jobs"]["done"] > 0
    assert report["figures"]["cloud"]["instances made"] > 0
