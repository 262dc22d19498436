# SPDX-License-Identifier: Apache-2.0
"""The ends of the log files of a test that failed."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.log_files import COLUMNS, END_LINES, FILES, TROUBLE_LINES, log_ends


def test_trouble_and_the_end(tmp_path: Path) -> None:
    (tmp_path / "builder").mkdir()
    begin = ["INFO begun", "WARNING a: slow", "DEBUG all well", "Traceback (most recent call last):", "ValueError: x"]
    end = [f"INFO line {number}" for number in range(END_LINES)]
    (tmp_path / "builder/builder.log").write_text("\n".join([*begin, *end]))
    (tmp_path / "nodepool.yaml").write_text("ERROR no log")
    [(name, text)] = log_ends(tmp_path)
    assert name == "builder/builder.log"
    assert text.splitlines() == [begin[1], begin[3], begin[4], "...", *end]


def test_bounded(tmp_path: Path) -> None:
    for number in range(FILES + 1):
        path = tmp_path / f"launcher{number}.log"
        path.write_text(f"ERROR {'x' * COLUMNS}\n" * 100)
        os.utime(path, (number, number))
    found = log_ends(tmp_path)
    assert [name for name, _ in found] == [f"launcher{number}.log" for number in range(1, FILES + 1)]
    lines = found[0][1].splitlines()
    assert len(lines) == TROUBLE_LINES + 1 + END_LINES
    assert max(map(len, lines)) == COLUMNS


def test_none(tmp_path: Path) -> None:
    assert log_ends(tmp_path) == []
