# SPDX-License-Identifier: Apache-2.0
"""tools/functional-containers, tools/functional-install: where they cannot run they say why, and do nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[3] / "tools"
CONTAINERS = ("functional-containers", "no image can be built here", "buildah mounts, which needs root")
INSTALL = ("functional-install", "no Debian can be made here", "debootstrap needs root")


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize(("tool", "told", "needs_root"), [CONTAINERS, INSTALL])
def test_no_rights(tmp_path: Path, tool: str, told: str, needs_root: str, root: bool) -> None:
    """One clear message, and an exit code of its own."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in {"id": f"echo {0 if root else 1000}", "apt-get": "exit 1", "unshare": "exit 1"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n", encoding="ascii")
        (programs / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", str(TOOLS / tool), "--which"], capture_output=True, text=True, timeout=60, check=False, env=env
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"{tool}: {told}: ")
    assert ("does not allow mounts" if root else needs_root) in done.stderr
