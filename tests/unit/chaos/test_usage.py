# SPDX-License-Identifier: Apache-2.0
"""Growth of launchers over a run."""

from __future__ import annotations

from tests.chaos.usage import GROWTH, grown

BEFORE = {"threads": 20, "files": 10, "memory": 60}


def test_about_the_same() -> None:
    most = {what: BEFORE[what] + GROWTH[what] for what in GROWTH}
    assert list(grown([BEFORE, BEFORE], [BEFORE, most])) == []
    assert list(grown([BEFORE], [{"threads": 1, "files": 3, "memory": 40}])) == []


def test_larger_limits() -> None:
    """Larger bursts need more threads and connections; memory must do."""
    after = {what: BEFORE[what] + 2 * GROWTH[what] for what in GROWTH}
    assert list(grown([BEFORE], [after], 2.0)) == ["launcher 0 has 180 memory, 60 before the faults"]
    assert len(list(grown([BEFORE], [after], 0.5))) == 3


def test_too_much() -> None:
    after = {**BEFORE, "files": 200}
    assert list(grown([BEFORE, BEFORE], [BEFORE, after])) == ["launcher 1 has 200 files, 10 before the faults"]
