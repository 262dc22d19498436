# SPDX-License-Identifier: Apache-2.0
"""``tox -e pictures``: the pictures of the documentation, of a demonstration with example jobs."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
WIDTHS: Final = {"overview-light.png": 1200, "request-dark.png": 1200, "overview-phone-dark.png": 390}


@pytest.mark.timeout(500)
def test_pictures(programs: Path, tmp_path: Path) -> None:
    """All that the pages show, of the right widths."""
    into = tmp_path / "pictures"
    into.mkdir()
    command = [sys.executable, "tools/pictures.py", "--minutes", "0", "--into", str(into), "--programs", str(programs)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {path.name for path in into.iterdir()} == {path.name for path in (ROOT / "doc/source/pictures").iterdir()}
    widths = {name: struct.unpack(">I", (into / name).read_bytes()[16:20])[0] for name in WIDTHS}
    assert widths == WIDTHS
