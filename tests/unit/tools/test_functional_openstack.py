# SPDX-License-Identifier: Apache-2.0
"""tools/functional-openstack: which cloud it takes, what it says when there is none, and that it cleans up."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "functional-openstack"
RIG = """#!/bin/sh
echo "$1" >>"$0.calls"
case $1 in
status) exit 1 ;;
env) echo /rig/clouds.yaml ;;
esac
"""


@pytest.fixture
def rig(tmp_path: Path) -> Path:
    """A rig that only notes what it is told."""
    path = tmp_path / "rig"
    path.write_text(RIG, encoding="ascii")
    path.chmod(0o755)
    return path


def run(tmp_path: Path, *arguments: str, user: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it for a user, with this alone of the tests' own variables in its environment."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "id").write_text(f"#!/bin/sh\necho {user}\n", encoding="ascii")
    (programs / "id").chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OS_", "OPENSTACK_", "NODEPOOL_"))}
    env = {**kept, "PATH": f"{programs}:{kept['PATH']}", **environment}
    command = ["bash", str(TOOL), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


def test_cloud_of_clouds_yaml(tmp_path: Path) -> None:
    """OS_CLOUD wins, and needs neither root nor a rig; the exit code is that of the command."""
    command = ["--exec", "sh", "-c", "echo on $OS_CLOUD; exit 7"]
    done = run(tmp_path, *command, user=1000, OS_CLOUD="mine", NODEPOOL_OPENSTACK_RIG="/nowhere")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.endswith("on mine\n")


@pytest.mark.parametrize(("user", "why"), [(0, "there is no /nowhere"), (1000, "the rig needs root")])
def test_no_cloud(tmp_path: Path, rig: Path, user: int, why: str) -> None:
    """One clear message, an exit code of its own, nothing done."""
    done = run(tmp_path, user=user, NODEPOOL_OPENSTACK_RIG="/nowhere" if user == 0 else str(rig))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert why in done.stderr
    assert "Needed: OS_CLOUD and a clouds.yaml, or root and the script of the rig" in done.stderr
    assert not Path(f"{rig}.calls").exists()


def test_rig(tmp_path: Path, rig: Path) -> None:
    """It is installed and started, and wiped whatever the command does."""
    done = run(tmp_path, "--exec", "sh", "-c", "echo $OS_CLIENT_CONFIG_FILE; exit 1", NODEPOOL_OPENSTACK_RIG=str(rig))
    assert done.returncode == 1
    assert "/rig/clouds.yaml\n" in done.stdout
    calls = Path(f"{rig}.calls").read_text(encoding="ascii").split()
    assert calls == ["status", "install", "start", "sshd", "env", "wipe"]


def test_which(tmp_path: Path, rig: Path) -> None:
    """To ask changes nothing."""
    done = run(tmp_path, "--which", NODEPOOL_OPENSTACK_RIG=str(rig))
    assert done.returncode == 0
    assert f"using the rig {rig}" in done.stdout
    assert not Path(f"{rig}.calls").exists()
