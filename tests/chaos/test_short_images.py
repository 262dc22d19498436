# SPDX-License-Identifier: Apache-2.0
"""One short run of two builders under all kinds of faults, in each CI run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.seeded_run import seeded_run


@pytest.mark.timeout(460)
def test_all_images_are_ready_and_nothing_leaks(tmp_path: Path) -> None:
    """B-11, U-12, R-1, R-2, R-4, R-5, R-9: builders, clouds, disks, ZooKeeper and records fail; invariants hold."""
    report = seeded_run("tests.chaos.images", tmp_path, "--seconds", "25", "--every", "1.5")
    assert report["violations"] == []
    assert report["figures"]["writes"]["upload ready with its lock"] > 0
