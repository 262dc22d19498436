# SPDX-License-Identifier: Apache-2.0
"""What builds noted, and their processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support import build_journal
from tests.support.small_dib import MARK


def test_processes_of_a_run(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: str(tmp_path)})
    try:
        assert [text.split(maxsplit=1) for text in build_journal.processes_of(tmp_path)] == [
            [str(process.pid), "sleep 60"]
        ]
        assert build_journal.processes_of(tmp_path / "other") == []
    finally:
        process.kill()
        process.wait()


def test_journal(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    assert build_journal.read_journal(file) == []
    file.write_text('{"begins": "debian-a"}\n{"built": "debian-a", "md5": {"raw": "5"}}\n{"bu', encoding="utf-8")
    assert build_journal.built_files(build_journal.read_journal(file)) == {"debian-a.raw": "5"}
