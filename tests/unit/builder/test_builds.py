# SPDX-License-Identifier: Apache-2.0
"""Builds: the command line, its run with scripts in its place (real processes, real signals), and their end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import nodepool
from nodepool.builder import build
from nodepool.builder.dib import DibRun, RunResult, end, kill, members, terminate, terminate_again
from nodepool.builder.image_files import BuildLog, root_command, run_as_root
from nodepool.builder.progress import BuildProgress, step_of
from nodepool.builder.uploads import OUTPUT_BYTES, PostUploadHookFailed, run_hook
from nodepool.config.objects import DiskImage
from nodepool.driver.config import ImageConversion
from tests.support.tables import rows
from tests.support.wait import wait_for


class ScriptedRun:
    """A `DibRun` of a script.

    :param script: for bash.
    """

    def __init__(
        self,
        directory: Path,
        script: str,
        *,
        variables: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] = lambda line: None,
        trap_seconds: float = 20.0,
    ) -> None:
        self.log_path = directory / "logs" / "build.log"
        self.lines: list[str] = []
        self.session = 0
        self._on_line = on_line
        self._log = BuildLog(self.log_path)
        command = ["bash", "-c", script]
        self.run: DibRun = DibRun(
            command, {**os.environ, **(variables or {})}, self._log, self._line, self._started, trap_seconds
        )

    def log_text(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        self._log.close()

    def _started(self, pid: int) -> None:
        self.session = pid

    def _line(self, line: str) -> None:
        self.lines.append(line)
        self._on_line(line)


VHD: Final = ImageConversion("raw", "vpc", "subformat=fixed", 1000)
#: Longer than any test takes.
LONG: Final = 300.0
(TOP,) = nodepool.__path__


def job(
    *formats: str, output: str = "/images/debian-0123", elements_dir: str | None = None, **image: Any
) -> build.BuildJob:
    """:param image: attributes of the image."""
    made = DiskImage("debian")
    for name, value in image.items():
        setattr(made, name, value)
    return build.BuildJob(made, "0123", frozenset(formats or ["qcow2"]), Path(output), elements_dir)


@rows(__file__, "test_command_line")
def test_command_line(formats: list[str], fields: dict[str, Any], words: list[str]) -> None:
    """B-5, B-14, B-15: one build makes all formats, qcow2 for old versions. Split as by a shell, nothing expanded."""
    if words:
        assert build.command_line(job(*formats, **fields)) == [word.replace("TOP", TOP) for word in words]
        return
    with pytest.raises(ValueError):
        build.command_line(job(*formats, **fields))


def test_environment() -> None:
    """B-6: that of the process, then what diskimage-builder is to know, then env-vars."""
    base = {"A": "process", "PATH": "/bin", "NOTIFY_SOCKET": "/run/systemd", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "2"}
    variables = {"A": "job", "DIB_RELEASE": "trixie"}
    made = build.environment(job(release="x", elements_dir="/elements", env_vars=variables), base, Path("/tmp/work"))
    assert made == {
        **variables,
        "PATH": "/bin",
        "DIB_IMAGE_NAME": "debian",
        "DIB_IMAGE_FILENAME": "/images/debian-0123",
        "ELEMENTS_PATH": "/elements",
        **dict.fromkeys(("TMPDIR", "TMP_DIR"), "/tmp/work"),
    }
    made = build.environment(job(), {"ELEMENTS_PATH": "/mine"}, Path("/tmp/work"))
    assert (made["ELEMENTS_PATH"], made["DIB_RELEASE"]) == ("/mine", "")


@rows(__file__, "test_temporary_directory")
def test_temporary_directory(variables: dict[str, str], base: dict[str, str], expected: str) -> None:
    """Where diskimage-builder would have put its files: env-vars decide before the process."""
    assert build.temporary_directory(job(env_vars=variables), base) == Path(expected)


@pytest.mark.parametrize(
    ("formats", "made"),
    [
        *(({"raw", "qcow2"}, ["qcow2", "raw"]), ({"vhd"}, ["raw"]), ({"vhd", "qcow2"}, ["qcow2", "raw"])),
        ({"vhd", "raw"}, ["raw"]),
    ],
)
def test_job(formats: set[str], made: list[str]) -> None:
    """B-18: diskimage-builder makes what another format is made of; a disk is rounded up."""
    found = job(*formats, conversions={"vhd": VHD})
    assert (found.formats, list(found.conversions)) == (made, ["vhd"] if "vhd" in formats else [])
    assert (found.name, found.image.dib_cmd) == ("debian-0123", build.COMMAND)
    create, convert = build.conversion_commands(VHD, Path("/i.raw"), Path("/i.vhd"), 2001)
    assert create == ["qemu-img", "create", "-q", "-f", "vpc", "-o", "subformat=fixed", "/i.vhd", "3000"]
    into = ["-n", "--target-is-zero", "-f", "raw", "-O", "vpc"]
    assert convert == ["qemu-img", "convert", *into, "/i.raw", "/i.vhd"]
    assert build.conversion_commands(VHD, Path("/i.raw"), Path("/i.vhd"), 2000)[0][-1] == "2000"


Scripted = Callable[..., ScriptedRun]


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Scripted]:
    """Makes runs of scripts; afterwards nothing of them may be left."""
    made: list[ScriptedRun] = []

    def make(script: str, stop_at: str = "", **settings: Any) -> ScriptedRun:
        if stop_at:
            settings["on_line"] = lambda line: made[-1].run.stop("enough") if line == stop_at else None
        made.append(ScriptedRun(tmp_path, script, **settings))
        return made[-1]

    yield make
    for run in made:
        run.close()
        assert not run.session or not members(run.session)


@rows(__file__, "test_end")
def test_end(scripted: Scripted, script: str, status: int, reason: str, log: str) -> None:
    """B-7, B-8: output and errors go to the log as they come; the last line is the exit code. A process in the
    background that keeps the output open does not hold it up.
    """
    run = scripted(script)
    found = run.run.run(LONG)
    assert (found.status, found.succeeded, found.reason) == (status, status == 0, reason)
    lines = log.splitlines() if log != "SEQUENCE" else [str(number) for number in range(1, 100001)]
    assert run.log_text().splitlines() == [*lines, f"Exit code: {status}"]
    assert run.lines == lines


@pytest.mark.parametrize("wait", ["", "sleep 300", "mkfifo silent; read <> silent"])
def test_traps_have_their_time(scripted: Scripted, tmp_path: Path, wait: str) -> None:
    """SIGTERM to all processes of the build; what the shell does at its end it may complete, and it is logged.

    So it is with the output filter of diskimage-builder. The shell has its name in its command line, too.
    """
    program = tmp_path / "outfilter.py"
    program.write_text(
        "import sys\nfor line in iter(sys.stdin.readline, ''):\n    print('|', line, end='', flush=True)\n"
    )
    filtered, mark = (f"exec 1> >(exec {sys.executable} {program}) 2>&1", "| ") if wait else ("", "")
    trap = f"trap 'echo unmounting; sleep 0.3; touch {tmp_path}/unmounted; echo unmounted' EXIT"
    run = scripted(f"{filtered}\n{trap}\ncd {tmp_path}\necho begun\n{wait or 'sleep 300'}\n", stop_at=f"{mark}begun")
    assert run.run.run(LONG) == RunResult(None, "enough")
    assert (tmp_path / "unmounted").exists()
    # The shell says of the command that it waited for: Terminated.
    lines = [line for line in run.log_text().splitlines() if not line.endswith("Terminated")]
    assert lines == [*(f"{mark}{text}" for text in ("begun", "unmounting", "unmounted")), "The build was ended: enough"]


def test_who_does_not_listen_is_killed(scripted: Scripted) -> None:
    """SIGKILL to all that are left, in process groups of their own, too."""
    script = "trap '' TERM; set -m; (trap '' TERM; sleep 301) & echo begun; while true; do sleep 300; done"
    run = scripted(script, stop_at="begun", trap_seconds=0.3)
    assert run.run.run(LONG) == RunResult(None, "enough")
    assert members(run.session) == []


def test_stop_before_the_start(scripted: Scripted, tmp_path: Path) -> None:
    """B-14: nothing is started any more; so it is with a command that is not there, and the log has the reason."""
    run = scripted(f"touch {tmp_path}/started")
    run.run.stop("too late")
    run.run.stop("another reason")
    assert run.run.run(LONG) == RunResult(None, "too late")
    assert run.log_text() == "The build was ended: too late\n"
    assert not (tmp_path / "started").exists()
    run.run.stop("after the end")
    log = BuildLog(tmp_path / "build.log")
    result = DibRun(["/nonexistent/dib"], {}, log).run(LONG)
    log.close()
    assert (result.status, "No such file or directory" in result.reason) == (None, True)
    assert "/nonexistent/dib cannot be started" in log.path.read_text()


Session = subprocess.Popen[bytes]


@pytest.fixture
def session() -> Iterator[Session]:
    """A shell with two children, in a session of its own."""
    shell = subprocess.Popen(["sh", "-c", "sleep 300 & sleep 300 & wait"], start_new_session=True)
    wait_for("three processes", lambda: len(members(shell.pid)) == 3)
    yield shell
    kill(shell.pid)
    shell.wait(10)


def test_end_of_a_session(session: Session) -> None:
    """SIGTERM is enough for who listens, once; another program of the same process did not hear it."""
    told = terminate(session.pid)
    assert (len(told), session.pid in [one.pid for one in told]) == (3, True)
    assert session.wait(30) == -signal.SIGTERM
    terminate_again(told)
    command = ["bash", "-c", "trap : TERM; echo ready; read answer; exec sleep 300"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, start_new_session=True, **pipes) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"ready\n"
        told = terminate(shell.pid)
        assert [line.split(b"\0")[0] for line in told.values()] == [b"bash"]
        shell.stdin.write(b"\n")
        shell.stdin.flush()
        wait_for("the other program", lambda: [one.command_line() for one in told] == [b"sleep\x00300\x00"])
        terminate_again(told)
        assert shell.wait(30) == -signal.SIGTERM
    with subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True) as busy:
        assert end(busy.pid, 30.0) == []
        assert busy.wait(30) == -signal.SIGTERM


@pytest.mark.parametrize("allowed", [True, False])
def test_processes_of_root(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, allowed: bool
) -> None:
    """diskimage-builder becomes root with sudo: signals need it, too. What cannot be ended is named."""
    # A stand-in for sudo that is not root either, and a process that is not allowed to send signals itself.
    calls, sudo = tmp_path / "calls", tmp_path / "sudo"
    work = f'printf "%s\\n" "$*" >> {calls}\nshift\nexec "$@"' if allowed else "echo a password is required >&2\nexit 1"
    sudo.write_text(f"#!/bin/sh\n{work}\n")
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def not_permitted(descriptor: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", not_permitted)
    pids = [one.pid for one in members(session.pid)]
    if allowed:
        assert end(session.pid, 30.0) == []
        ids = " ".join(map(str, pids))
        assert calls.read_text().splitlines() == [f"-n kill -s {name} -- {ids}" for name in ("STOP", "TERM", "CONT")]
        return
    assert len(kill(session.pid, 0.0)) == 3
    assert "a password is required" in caplog.text
    assert str(session.pid) in caplog.text
    os.killpg(session.pid, signal.SIGKILL)


@rows(__file__, "test_commands_of_root")
def test_commands_of_root(command: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With sudo for others, which never asks for a password."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    problem = run_as_root("sh", "-c", command, timeout=0.5 if expected == "timed out" else 30)
    assert expected in problem
    assert bool(problem) == bool(expected)
    assert "No such file" in run_as_root("/nonexistent/umount")
    assert root_command(["kill", "1"], user_id=0) == ["kill", "1"]
    assert root_command(["kill", "1"], user_id=1000) == ["sudo", "-n", "kill", "1"]


@rows(__file__, "test_step_of")
def test_step_of(line: str, expected: str | None) -> None:
    assert step_of(line) == expected


@rows(__file__, "test_post_upload_hook")
def test_post_upload_hook(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, script: str | None, error: str | None, logged: str
) -> None:
    """reference/configuration 9: provider, id and file are its arguments; the end of what it writes is in the log. One
    that hangs is killed, and so is what it started.
    """
    caplog.set_level("INFO")
    path = tmp_path / "hook"
    if script is not None:
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
    seconds = 0.5 if script == "sleep 1000" else 60.0
    with contextlib.nullcontext() if error is None else pytest.raises(PostUploadHookFailed, match=error):
        run_hook(str(path), "cloud", "i-1", "/images/fedora-1.qcow2", seconds=seconds)
    assert logged in caplog.text
    assert logged or not caplog.records
    assert len(caplog.text) < OUTPUT_BYTES + 1000


def test_durations() -> None:
    """A step ends when another one begins; scripts of one phase are one step."""
    progress = BuildProgress(100.0)
    assert progress.step == "starting"
    assert progress.read("dib-run-parts Running /a/root.d/10-a", 101.0)
    assert not progress.read("dib-run-parts Running /a/root.d/20-b", 105.0)
    assert not progress.read("anything", 106.0)
    assert progress.read("Converting image using qemu-img convert", 111.0)
    assert (progress.step, progress.since) == ("converting", 111.0)
    progress.end(110.0)
    assert progress.ended == [("starting", 1.0), ("root", 10.0), ("converting", 0.0)]
