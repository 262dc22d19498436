# SPDX-License-Identifier: Apache-2.0
"""nodepool.cmd.daemon: one daemon at a time (reference/commands 3)."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from nodepool.cmd.daemon import PidFile, PidFileError
from tests.support.wait import wait_for


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(30)
    return process.pid


def take_over(directory: Path, content: str | None) -> None:
    """A pid file with this content (None = there is none) keeps nobody from starting."""
    path = directory / "nodepool.pid"
    if content is not None:
        path.write_text(content, encoding="ascii")
    pidfile = PidFile(str(path), timeout=0)
    pidfile.acquire()
    assert pidfile.read() == os.getpid()
    pidfile.release()


def test_holds_our_number_and_goes_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "nodepool.pid"
    pidfile = PidFile(str(path))
    pidfile.acquire()
    with pidfile:
        assert path.read_text(encoding="ascii") == f"{os.getpid()}\n"
    assert not path.exists()


def test_second_daemon_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "nodepool.pid")
    first = PidFile(path)
    first.acquire()
    with pytest.raises(PidFileError, match=f"another daemon is running \\(process {os.getpid()}\\)"):
        PidFile(path, timeout=0).acquire()
    first.release()
    second = PidFile(path, timeout=0)
    second.acquire()
    second.release()


@pytest.mark.parametrize("content", ["", "nonsense", "-1", "99999999999999999999"])
def test_foreign_content_is_taken_over(tmp_path: Path, content: str) -> None:
    take_over(tmp_path, content)


def test_stale_file_is_taken_over(tmp_path: Path) -> None:
    """reference/commands 3: a stale pid file is broken."""
    take_over(tmp_path, f"{dead_process()}\n")


@pytest.mark.parametrize("program", ["python3", "nodepool-tail", "nodepool-launcher/tail"])
def test_number_of_another_program_is_taken_over(tmp_path: Path, program: str) -> None:
    """Process numbers are used again: a daemon counts, and not a directory or an argument with its name."""
    script = tmp_path / "nodepool" / program
    script.parent.mkdir(parents=True)
    script.write_text("input()", encoding="utf-8")
    with subprocess.Popen([sys.executable, str(script), "nodepool-launcher"], stdin=subprocess.PIPE) as other:
        take_over(tmp_path, f"{other.pid}\n")


@pytest.mark.parametrize("program", ["nodepool-launcher", "nodepool-builder"])
def test_running_daemon_without_flock_is_respected(tmp_path: Path, program: str) -> None:
    """The released daemons do not use flock; their process number and program are looked at."""
    path, script = tmp_path / "daemon.pid", tmp_path / program
    script.write_text("input()", encoding="utf-8")
    with subprocess.Popen([sys.executable, "-u", str(script), "-f"], stdin=subprocess.PIPE) as other:
        path.write_text(f"{other.pid}\n", encoding="ascii")
        wait_for("it runs", lambda: program.encode() in Path(f"/proc/{other.pid}/cmdline").read_bytes())
        with pytest.raises(PidFileError, match=f"process {other.pid}"):
            PidFile(str(path), timeout=0).acquire()


def test_unwritable_directory_is_one_clear_line(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "too"
    with pytest.raises(PidFileError, match="cannot write the pid file: No such file or directory") as caught:
        PidFile(str(missing / "nodepool.pid")).acquire()
    assert f"make the directory: install -d -o {pwd.getpwuid(os.geteuid()).pw_name} {missing}," in str(caught.value)


def test_missing_directory_is_made(tmp_path: Path) -> None:
    """reference/commands 3: after a boot ``/var/run`` is empty. Whoever watches the daemon may read the file."""
    path = tmp_path / "run" / "nodepool.pid"
    umask = os.umask(0o077)
    try:
        take_over(path.parent, None)
    finally:
        os.umask(umask)
    assert path.parent.stat().st_mode & 0o777 == 0o755
