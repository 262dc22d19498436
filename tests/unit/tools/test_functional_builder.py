# SPDX-License-Identifier: Apache-2.0
"""tools/functional-builder: where it cannot run it says why, and does nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

TOOL = Path(__file__).parents[3] / "tools" / "functional-builder"


def run(tmp_path: Path, *arguments: str, user: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it for a user; to install or mount anything fails."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in {"id": f"echo {user}", "apt-get": "exit 1", "unshare": "exit 1"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n", encoding="ascii")
        (programs / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **environment}
    command = ["bash", str(TOOL), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


def test_not_root(tmp_path: Path) -> None:
    """One clear message, and an exit code of its own."""
    done = run(tmp_path, user=1000, OS_CLOUD="mine")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "functional-builder: no image can be built here: builds mount, which needs root.\n"


def test_no_mounts(tmp_path: Path) -> None:
    """As in a container without rights: loop devices, or mounts, are not there."""
    done = run(tmp_path, "--which", user=0, OS_CLOUD="mine")
    assert (done.returncode, done.stdout) == (3, "")
    assert "no image can be built here: " in done.stderr
