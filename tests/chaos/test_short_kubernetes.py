# SPDX-License-Identifier: Apache-2.0
"""One short run with Kubernetes as the cloud under all kinds of faults, in each CI run, see ``--cloud kubernetes``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.test_short import DEADLINE_SECONDS, END_SECONDS
from tests.support.seeded_run import seeded_run

FAULT_SECONDS = 12.0


@pytest.mark.timeout(460)
def test_nothing_is_lost_and_nothing_leaks(tmp_path: Path) -> None:
    """F-1, F-2, F-4, F-5; KU-9 to KU-12: lost answers, kills between calls, watches that expire; invariants hold."""
    options = ["--cloud", "kubernetes", "--seconds", str(FAULT_SECONDS)]
    report = seeded_run("tests.chaos", 1, tmp_path, options=options, seconds=DEADLINE_SECONDS, end_seconds=END_SECONDS)
    assert report["violations"] == []
    assert report["figures"]["jobs"]["done"] > 0
    assert report["figures"]["cloud"]["namespaces created"] > 0
