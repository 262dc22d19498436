# SPDX-License-Identifier: Apache-2.0
"""tools/functional-kubernetes: which rig it takes, and what it says when there is none."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "functional-kubernetes"


@pytest.fixture
def rig(tmp_path: Path) -> Path:
    """A rig that notes that it was called."""
    path = tmp_path / "rig"
    path.write_text('#!/bin/sh\necho "$1" >>"$0.calls"\n', encoding="ascii")
    path.chmod(0o755)
    return path


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("K8S_", "NODEPOOL_"))}
    command = ["bash", str(TOOL), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**kept, **environment})


def test_no_rig() -> None:
    """One clear message, and an exit code of its own."""
    done = run(NODEPOOL_KUBERNETES_RIG="/nowhere")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "there is no /nowhere" in done.stderr
    assert "NODEPOOL_KUBERNETES_RIG" in done.stderr


def test_which(rig: Path) -> None:
    """To ask starts nothing."""
    done = run("--which", NODEPOOL_KUBERNETES_RIG=str(rig))
    assert done.returncode == 0
    assert f"using the rig {rig}" in done.stdout
    assert not Path(f"{rig}.calls").exists()


def test_the_exit_code_is_that_of_pytest(rig: Path, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "$@"\nexit 7\n', encoding="ascii")
    program.chmod(0o755)
    done = run("-k", "pods", NODEPOOL_KUBERNETES_RIG=str(rig), PYTHON=str(program))
    assert done.returncode == 7
    assert "-m pytest" in done.stdout
    assert "-k pods\n" in done.stdout
