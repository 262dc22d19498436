# SPDX-License-Identifier: Apache-2.0
"""``tools/install`` as a command: its script, and an installation below a directory (how-to/install)."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path
from typing import Final

import pytest

from install_lib import __main__ as tool
from install_lib.plan import PROGRAMS
from tests.support.install_host import snapshot

TOOL: Final = Path(__file__).parents[2] / "tools" / "install"
Captured = pytest.CaptureFixture[str]


class TestScript:
    """tools/install itself, with programs of the system replaced."""

    def run(self, tmp_path: Path, programs: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
        directory = tmp_path / "bin"
        directory.mkdir()
        for name, line in programs.items():
            (directory / name).write_text(f"#!/bin/sh\n{line}\n", encoding="ascii")
            (directory / name).chmod(0o755)
        env = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
        command = ["bash", str(TOOL), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)

    @pytest.mark.parametrize("arguments", [[], ["--uninstall"], ["--extras", "tracing"]])
    def test_without_root(self, tmp_path: Path, arguments: list[str]) -> None:
        """One line, exit code 1, nothing tried."""
        done = self.run(tmp_path, {"id": "echo 1000", "python3": "exit 9", "apt-get": "exit 9"}, *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "install: not root, so nothing was changed. Run it as root, or with --dry-run to see what it would do.\n"
        )

    def test_dry_run_with_an_old_python(self, tmp_path: Path) -> None:
        programs = {"id": "echo 1000", "python3": '[ "$1" = --version ] && echo Python 3.9.2 || exit 1'}
        done = self.run(tmp_path, programs, "--dry-run")
        assert done.returncode == 1
        assert "Python 3.9.2 is too old: Python 3.11 or newer is needed" in done.stderr

    def test_dry_run_without_venv(self, tmp_path: Path) -> None:
        """It never calls apt."""
        called = tmp_path / "called"
        python = 'case "$2" in *ensurepip*) exit 1 ;; esac; [ "$1" = -c ] || echo INSTALL "$@"'
        programs = {"id": "echo 1000", "python3": python, "apt-get": f"touch {called}"}
        done = self.run(tmp_path, programs, "--dry-run")
        assert done.stdout == "would install Debian packages: python3-venv\nINSTALL -m install_lib --dry-run\n"
        assert not called.exists()

    @pytest.mark.parametrize(
        ("arguments", "wrong"),
        [
            (["--root", "/"], "--root / is this machine"),
            (["--root", "x", "--purge"], "--purge goes with --uninstall"),
            (["--root", "x", "--directory", "opt"], "is not the full path"),
            (["--root", "x", "--extras", "a b"], "--extras: invalid"),
        ],
    )
    def test_arguments(self, tmp_path: Path, arguments: list[str], wrong: str) -> None:
        done = self.run(tmp_path, {}, *arguments)
        assert done.returncode == 2
        assert wrong in done.stderr


class TestTree:
    """``--root``, with a real virtual environment and a wheel that needs nothing."""

    def run(self, tmp_path: Path, *arguments: str) -> str:
        env = {**os.environ, "PIP_NO_INDEX": "1"}
        # What root's shell may have set must not shut the daemons' user out.
        command = ["bash", "-c", 'umask 077; exec "$@"', "-", str(TOOL), "--root", str(tmp_path / "tree"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def test_install_and_uninstall(self, tmp_path: Path) -> None:
        wheel = str(small_wheel(tmp_path))
        tree = tmp_path / "tree"
        arguments = ["--wheel", wheel, "--no-man-pages", "--extras", "colours"]
        assert "with Nodepool, extra colours (takes some minutes)\n" in self.run(tmp_path, *arguments)
        programs = tree / "opt" / (tree / "opt" / "nodepool").readlink() / "bin"
        for name in PROGRAMS:
            text = (programs / name).read_text(encoding="utf-8")
            assert "/opt/nodepool-1.2.3-" in text
            assert str(tree) not in text
            assert (programs / name).stat().st_mode & 0o777 == 0o755
        assert (programs.parent / "share" / "completion" / "nodepool.fish").read_text(encoding="utf-8") == "fish\n"
        before = snapshot(tree)
        assert "Nothing to do" in self.run(tmp_path, *arguments)
        assert snapshot(tree) == before
        self.run(tmp_path, "--uninstall", "--purge")
        assert not any(content for _, content in snapshot(tree).values())

    def test_wheel_of_something_else(self, tmp_path: Path, capsys: Captured) -> None:
        wheel = small_wheel(tmp_path, "other")
        assert tool.main(["--root", str(tmp_path / "tree"), "--wheel", str(wheel)]) == 1
        assert "is no wheel of Nodepool" in capsys.readouterr().err
        assert tool.main(["--root", str(tmp_path / "tree"), "--wheel", str(TOOL)]) == 1
        assert "is no wheel\n" in capsys.readouterr().err
        assert not (tmp_path / "tree").exists()


def small_wheel(directory: Path, name: str = "nodepool") -> Path:
    """A wheel with our programs, each of which prints its last argument."""
    path = directory / f"{name}-1.2.3-py3-none-any.whl"
    information = f"{name}-1.2.3.dist-info"
    scripts = "".join(f"{program} = {name}:main\n" for program in PROGRAMS)
    files = {
        f"{name}/__init__.py": "import sys\ndef main():\n    print(sys.argv[-1])\n",
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\nProvides-Extra: colours\n",
        f"{information}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{information}/entry_points.txt": f"[console_scripts]\n{scripts}",
    }
    files[f"{information}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{information}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path
