# SPDX-License-Identifier: Apache-2.0
"""tools/functional-install: where it cannot run it says why, and does nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "functional-install"


@pytest.mark.parametrize(("user", "why"), [(1000, "debootstrap needs root"), (0, "does not allow mounts")])
def test_no_rights(tmp_path: Path, user: int, why: str) -> None:
    """One clear message, and an exit code of its own."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in {"id": f"echo {user}", "apt-get": "exit 1", "unshare": "exit 1"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n", encoding="ascii")
        (programs / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(TOOL), "--which"], capture_output=True, text=True, timeout=60, check=False, env=env
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("functional-install: no Debian can be made here: ")
    assert why in done.stderr
