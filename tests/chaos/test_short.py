# SPDX-License-Identifier: Apache-2.0
"""One short run under all kinds of faults, in each CI run. ``tox -e chaos`` has many and longer ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos.run import Settings, run
from tests.chaos.schedule import make_schedule

SEED = 1
SECONDS = 45.0
LAUNCHERS = 3


@pytest.mark.timeout(400)
def test_nothing_is_lost_and_nothing_leaks(tmp_path: Path) -> None:
    """DESIGN 5, F-1 to F-5: launchers, ZooKeeper, cloud and clients fail, and all invariants hold."""
    report = run(Settings(SEED, make_schedule(SEED, SECONDS, LAUNCHERS), LAUNCHERS), tmp_path)
    print(json.dumps(report))
    assert report["violations"] == []
    assert report["figures"]["jobs"]["done"] > 0
