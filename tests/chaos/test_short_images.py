# SPDX-License-Identifier: Apache-2.0
"""One short run of two builders under all kinds of faults, in each CI run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.seeded_run import seeded_run

FAULT_SECONDS = 25.0
#: How long the whole run may take, also on a busy machine; and its end when it takes longer.
DEADLINE_SECONDS, END_SECONDS = 400.0, 40.0


@pytest.mark.timeout(460)
def test_all_images_are_ready_and_nothing_leaks(tmp_path: Path) -> None:
    """B-11, U-12, R-1, R-2, R-4, R-5, R-9: builders, clouds, disks, ZooKeeper and records fail; invariants hold."""
    report = seeded_run(
        "tests.chaos.images",
        1,
        tmp_path,
        options=["--seconds", str(FAULT_SECONDS), "--every", "1.5"],
        seconds=DEADLINE_SECONDS,
        end_seconds=END_SECONDS,
    )
    assert report["violations"] == []
    assert report["figures"]["writes"]["upload ready with its lock"] > 0
