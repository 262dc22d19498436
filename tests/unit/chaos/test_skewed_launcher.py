# SPDX-License-Identifier: Apache-2.0
"""A wall clock that is wrong, and can be set while it is read."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.skewed_launcher import skewed_clock, write_offset


def test_offset(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    write_offset(file, 0.0)
    now = skewed_clock(file, lambda: 1000.0)
    assert now() == 1000.0
    write_offset(file, -600.0)
    assert now() == 400.0
    write_offset(file, 600.0)
    assert now() == 1600.0
