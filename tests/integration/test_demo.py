# SPDX-License-Identifier: Apache-2.0
"""tools/demo, the first command of the README, without the installation of packages."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.support.wait import wait_for

ROOT = Path(__file__).parents[2]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The commands, run by the interpreter of the tests from this tree."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, module in (
        ("nodepool", "cli"),
        ("nodepool-launcher", "launcher"),
        ("nodepool-builder", "builder"),
        ("nodepool-web", "web"),
    ):
        program = directory / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m nodepool.cmd.{module} "$@"\n')
        program.chmod(0o755)
    return directory


@pytest.fixture
def command(programs: Path, tmp_path: Path) -> list[str]:
    return [sys.executable, "-m", "demo_lib", "--programs", str(programs), "--directory", str(tmp_path / "demo")]


@pytest.fixture
def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'tools'}:{ROOT}", "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Afterwards no process may know the directory of the demonstration."""
    yield
    left = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(tmp_path) in words:
            left.append(words)
    assert left == []


@pytest.mark.usefixtures("nothing_left")
def test_once(command: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    """Two nodes are used and ready again; a third boots from an image that was built; all ends, exit code 0."""
    done = subprocess.run(
        [*command, "--once"], env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("is fulfilled after", "in-use", "All 5 nodes are ready again", "Nothing is left running"):
        assert text in done.stdout
    for text in ("$ nodepool dib-image-list", "$ nodepool image-list", "The image stays."):
        assert text in done.stdout
    assert (tmp_path / "demo").stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("nothing_left")
def test_interrupt(command: list[str], environment: dict[str, str]) -> None:
    """It stays up until Ctrl-C, which ends it with exit code 0.

    Until then example jobs come and go, the commands that it proposes succeed, and its web pages show what there is.
    """
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as demo:
        assert demo.stdout is not None
        seen = []
        pages: dict[str, str] = {}
        for line in demo.stdout:
            seen.append(line)
            if found := re.search(r"The web pages, .*(http://127\.0\.0\.1:\d+/)", line):
                try:
                    proposed_commands_succeed(seen)
                    wait_for("a node in use", lambda: "tools/compiler" in httpx.get(f"{found[1]}nodes").text, 60)
                    addresses = ("", "nodes", "images/debian", "events")
                    pages = {path: httpx.get(found[1] + path).text for path in addresses}
                finally:
                    demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0, "".join(seen)
    assert "Nothing is left running" in seen[-1]
    for path, text in (("", "lab"), ("nodes", "127.0.71.4"), ("images/debian", "ready"), ("events", "launcher")):
        assert text in pages[path], path


def proposed_commands_succeed(lines: list[str]) -> None:
    """As they are printed, and without the environment of the demonstration."""
    begin = next(number for number, line in enumerate(lines) if "In another terminal, try" in line)
    proposed = [line.strip() for line in lines[begin:] if "/nodepool " in line]
    assert len(proposed) >= 8
    for text in proposed:
        done = subprocess.run(text.split(), capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, "warning" in done.stderr) == (0, False), text + done.stdout + done.stderr


@pytest.mark.usefixtures("nothing_left")
def test_launcher_that_does_not_start(
    command: list[str], environment: dict[str, str], programs: Path, tmp_path: Path
) -> None:
    """What failed and the end of its log are shown, the rest is ended, exit code 1."""
    (programs / "nodepool-launcher").write_text("#!/bin/sh\necho no luck today\nexit 3\n")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 1
    assert "nodepool-launcher ended with exit code 3" in done.stderr
    assert "no luck today" in done.stderr
    assert "Traceback" not in done.stderr
    assert f"Logs: {tmp_path / 'demo'}" in done.stdout


def test_directory_that_exists(command: list[str], environment: dict[str, str], tmp_path: Path) -> None:
    """Nothing of somebody else's is overwritten."""
    (tmp_path / "demo").mkdir()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "name a directory that does not exist yet" in done.stderr
