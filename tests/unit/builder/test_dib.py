# SPDX-License-Identifier: Apache-2.0
"""Runs of diskimage-builder, with scripts in its place: real processes, real signals."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodepool.builder import dib
from nodepool.builder.dib import DibRun, RunResult
from nodepool.builder.image_files import BuildLog
from tests.support.build_scripts import ScriptedRun

#: Longer than any test takes.
LONG = 300.0


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Callable[..., ScriptedRun]]:
    """Makes runs of scripts; afterwards nothing of them may be left."""
    made = []

    def make(script: str, **settings: object) -> ScriptedRun:
        made.append(ScriptedRun(tmp_path, script, **settings))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for run in made:
        run.close()
        assert not run.session or not dib.members(run.session)


def test_success(scripted: Callable[..., ScriptedRun]) -> None:
    """B-7: output and errors go to the log as they come; the last line is the exit code."""
    run: ScriptedRun = scripted("echo begun; echo wrong >&2; printf 'no end'")
    result = run.run.run(LONG)
    assert result == RunResult(0)
    assert result.succeeded
    assert run.log_text() == "begun\nwrong\nno end\nExit code: 0\n"
    assert run.lines == ["begun", "wrong", "no end"]


def test_failure(scripted: Callable[..., ScriptedRun]) -> None:
    """B-8: an exit code that is not 0."""
    run: ScriptedRun = scripted("exit 7")
    result = run.run.run(LONG)
    assert (result.status, result.reason, result.succeeded) == (7, "exit code 7", False)
    assert run.log_text() == "Exit code: 7\n"


def test_end_by_a_signal(scripted: Callable[..., ScriptedRun]) -> None:
    """B-8"""
    run: ScriptedRun = scripted("kill -KILL $$")
    assert run.run.run(LONG).status == -9
    assert run.log_text() == "Exit code: -9\n"


def test_time_is_over(scripted: Callable[..., ScriptedRun]) -> None:
    """B-7, B-8: build-timeout ends it; there is no exit code in the log."""
    run: ScriptedRun = scripted("echo begun; sleep 300")
    result = run.run.run(0.5)
    assert (result.status, result.timed_out, result.succeeded) == (None, True, False)
    assert "Exit code" not in run.log_text()
    assert "longer than build-timeout, 0.5 s" in run.log_text()


def test_traps_have_their_time(scripted: Callable[..., ScriptedRun], tmp_path: Path) -> None:
    """SIGTERM to all processes of the build; what the shell does at its end it may complete, and it is logged."""
    run: ScriptedRun = scripted(
        f"trap 'echo unmounting; sleep 0.3; touch {tmp_path}/unmounted; echo unmounted' EXIT; echo begun; sleep 300",
        on_line=lambda line: run.run.stop("the builder stops") if line == "begun" else None,
    )
    result = run.run.run(LONG)
    assert (result.status, result.reason, result.timed_out) == (None, "the builder stops", False)
    assert (tmp_path / "unmounted").exists()
    # The shell says of the command that it waited for: Terminated.
    lines = [line for line in run.log_text().splitlines() if line != "Terminated"]
    assert lines == ["begun", "unmounting", "unmounted", "The build was ended: the builder stops"]


@pytest.mark.parametrize("wait", ["sleep 300", "mkfifo silent; read <> silent"], ids=["in a command", "itself"])
def test_filter_of_the_output_outlives_the_traps(
    scripted: Callable[..., ScriptedRun], tmp_path: Path, wait: str
) -> None:
    """diskimage-builder writes through a program of its own; if that ended first, its traps would end at once.

    The shell has the name of that program in its command line, too. It is not spared, whatever it waits for.
    """
    program = tmp_path / "outfilter.py"
    program.write_text(
        "import sys\nfor line in iter(sys.stdin.readline, ''):\n    print('|', line, end='', flush=True)\n"
    )
    script = f"""
        exec 1> >(exec {sys.executable} {program}) 2>&1
        trap 'echo unmounting; touch {tmp_path}/unmounted; echo unmounted' EXIT
        cd {tmp_path}
        echo begun
        {wait}
    """
    run: ScriptedRun = scripted(script, on_line=lambda line: run.run.stop("enough") if line == "| begun" else None)
    assert run.run.run(LONG).reason == "enough"
    assert (tmp_path / "unmounted").exists()
    lines = [line for line in run.log_text().splitlines() if line != "| Terminated"]
    assert lines[:3] == ["| begun", "| unmounting", "| unmounted"]


def test_who_does_not_listen_is_killed(scripted: Callable[..., ScriptedRun]) -> None:
    """SIGKILL to all that are left, in process groups of their own, too."""
    script = "trap '' TERM; set -m; (trap '' TERM; sleep 301) & echo begun; while true; do sleep 300; done"
    run: ScriptedRun = scripted(script, on_line=lambda line: run.run.stop("enough"), trap_seconds=0.3)
    assert run.run.run(LONG).left == []
    assert dib.members(run.session) == []


def test_what_is_left_behind_ends(scripted: Callable[..., ScriptedRun]) -> None:
    """A process in the background that keeps the output open holds up nobody."""
    run: ScriptedRun = scripted("sleep 300 & echo done")
    result = run.run.run(LONG)
    assert result.succeeded
    assert run.log_text() == "done\nExit code: 0\n"
    assert dib.members(run.session) == []


def test_build_that_cannot_be_followed_is_ended(
    scripted: Callable[..., ScriptedRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """E.g. the limit of open files: it does not go on without anybody who knows of it."""

    def no_more_files(pid: int) -> int:
        monkeypatch.undo()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    run: ScriptedRun = scripted("sleep 300")
    monkeypatch.setattr(os, "pidfd_open", no_more_files)
    with pytest.raises(OSError, match="Too many open files"):
        run.run.run(LONG)
    assert run.session
    assert dib.members(run.session) == []


def test_stop_before_the_start(scripted: Callable[..., ScriptedRun], tmp_path: Path) -> None:
    """Nothing is started any more."""
    run: ScriptedRun = scripted(f"touch {tmp_path}/started")
    run.run.stop("too late")
    run.run.stop("another reason")
    assert run.run.run(LONG) == RunResult(None, "too late")
    assert run.log_text() == "The build was ended: too late\n"
    assert not (tmp_path / "started").exists()
    run.run.stop("after the end")


def test_command_that_is_not_there(tmp_path: Path) -> None:
    """B-14: the reason is in the log."""
    log = BuildLog(tmp_path / "build.log")
    result = DibRun(["/nonexistent/disk-image-create"], {}, log).run(LONG)
    log.close()
    assert result.status is None
    assert "No such file or directory" in result.reason
    assert "/nonexistent/disk-image-create cannot be started" in log.path.read_text()


def test_much_output(scripted: Callable[..., ScriptedRun]) -> None:
    run: ScriptedRun = scripted("seq 1 100000")
    assert run.run.run(LONG).succeeded
    assert run.lines == [str(number) for number in range(1, 100001)]


def test_reader_that_raises_changes_nothing(
    scripted: Callable[..., ScriptedRun], caplog: pytest.LogCaptureFixture
) -> None:
    def read(line: str) -> None:
        raise ValueError(line)

    assert scripted("echo strange", on_line=read).run.run(LONG).succeeded
    assert "ValueError: strange" in caplog.text


def test_its_files_are_for_others_to_read(scripted: Callable[..., ScriptedRun], tmp_path: Path) -> None:
    """What is in an image must not depend on the umask of the daemon."""
    before = os.umask(0o077)
    try:
        assert scripted(f"touch {tmp_path}/file").run.run(LONG).succeeded
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_session_of_its_own(scripted: Callable[..., ScriptedRun]) -> None:
    """A signal to the builder's process group, e.g. of a terminal, does not reach the build."""
    run: ScriptedRun = scripted("echo $(ps -o sid= -p $$) $$")
    assert run.run.run(LONG).succeeded
    session, pid = run.lines[0].split()
    assert session == pid == str(run.session)
    assert run.session != os.getsid(0)


def test_signals_of_the_builder_are_not_blocked(scripted: Callable[..., ScriptedRun]) -> None:
    """Python ignores SIGPIPE; the commands of a build must not."""
    run: ScriptedRun = scripted("grep SigIgn /proc/self/status")
    assert run.run.run(LONG).succeeded
    assert not int(run.lines[0].split()[1], 16) & 1 << (signal.SIGPIPE - 1)
