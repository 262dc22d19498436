# SPDX-License-Identifier: Apache-2.0
"""Processes of a session, and their end, also of those that are root's."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodepool.builder import dib
from tests.support.wait import wait_for


@pytest.fixture
def session() -> Iterator[subprocess.Popen[bytes]]:
    """A shell with two children, in a session of its own."""
    shell = subprocess.Popen(["sh", "-c", "sleep 300 & sleep 300 & wait"], start_new_session=True)
    wait_for("three processes", lambda: len(dib.members(shell.pid)) == 3)
    yield shell
    dib.kill(shell.pid)
    shell.wait(10)


def test_members(session: subprocess.Popen[bytes]) -> None:
    first = dib.process_of(session.pid)
    assert first is not None
    assert first in dib.members(session.pid)
    assert first.command_line().startswith(b"sh\0-c\0sleep")
    assert any(variable.startswith(b"PATH=") for variable in first.environment())


def test_who_has_ended_is_no_member() -> None:
    """Also while nobody has asked how it ended."""
    done = subprocess.Popen(["true"], start_new_session=True)
    wait_for("its end", lambda: dib.process_of(done.pid) is None)
    assert dib.members(done.pid) == []
    done.wait(10)
    gone = dib.Process(done.pid, done.pid, 0)
    assert (gone.command_line(), gone.environment()) == (b"", [b""])


def test_end(session: subprocess.Popen[bytes]) -> None:
    """SIGTERM is enough for who listens."""
    assert dib.end(session.pid, 30.0) == []
    assert session.wait(10) == -signal.SIGTERM


def test_who_begins_another_program_is_told_again() -> None:
    """A child of a shell that got SIGTERM before it began its own program, which knows nothing of it."""
    program = "trap : TERM; echo ready; read answer; exec sleep 300"
    with subprocess.Popen(
        ["bash", "-c", program], start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"ready\n"
        told = dib.terminate(shell.pid)
        assert [line.split(b"\0")[0] for line in told.values()] == [b"bash"]
        shell.stdin.write(b"\n")
        shell.stdin.flush()
        wait_for("the other program", lambda: [one.command_line() for one in told] == [b"sleep\x00300\x00"])
        dib.terminate_again(told)
        assert shell.wait(30) == -signal.SIGTERM


def test_who_begins_no_other_program_is_told_once(session: subprocess.Popen[bytes]) -> None:
    told = dib.terminate(session.pid)
    assert session.pid in [one.pid for one in told]
    assert len(told) == 3
    assert session.wait(30) == -signal.SIGTERM
    # Nobody is there any more who could be told.
    dib.terminate_again(told)


def test_who_never_waits_is_told_all_the_same() -> None:
    with subprocess.Popen(["sh", "-c", "while :; do :; done"], start_new_session=True) as shell:
        assert dib.end(shell.pid, 30.0) == []
        assert shell.wait(30) == -signal.SIGTERM


def test_who_stops_itself_goes_on(session: subprocess.Popen[bytes]) -> None:
    """sudo does, when it hears late that its command was stopped."""
    first = dib.process_of(session.pid)
    assert first is not None
    assert not first.stopped
    os.kill(session.pid, signal.SIGSTOP)

    def stopped() -> bool:
        found = dib.process_of(session.pid)
        return found is not None and found.stopped

    wait_for("it is stopped", stopped)
    for one in dib.members(session.pid):
        os.kill(one.pid, signal.SIGTERM)
    assert dib.wait_empty(session.pid, 30.0) == []
    assert session.wait(10) == -signal.SIGTERM


def test_who_got_the_id_of_another_lives_on(session: subprocess.Popen[bytes]) -> None:
    """A process of a session ends, and its id is given out again, between the look and the signal."""
    first = dib.process_of(session.pid)
    assert first is not None
    dib.send(signal.SIGKILL, [replace(first, started=first.started - 1)])
    assert first in dib.members(session.pid)
    dib.send(signal.SIGKILL, [first])
    assert session.wait(10) == -signal.SIGKILL


def test_kill(session: subprocess.Popen[bytes]) -> None:
    assert dib.kill(session.pid) == []
    assert session.wait(10) == -signal.SIGKILL


@pytest.fixture
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for sudo that is not root either, and a process that is not allowed to send signals itself."""
    calls = tmp_path / "calls"
    program = tmp_path / "sudo"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {calls}\nshift\nexec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def not_permitted(descriptor: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", not_permitted)
    return calls


def test_processes_of_root_are_ended_with_sudo(session: subprocess.Popen[bytes], sudo: Path) -> None:
    """diskimage-builder becomes root with sudo: a signal of the builder's user does not reach its children."""
    pids = [one.pid for one in dib.members(session.pid)]
    assert dib.end(session.pid, 30.0) == []
    ids = " ".join(map(str, pids))
    assert sudo.read_text().splitlines() == [f"-n kill -s {name} -- {ids}" for name in ("STOP", "TERM", "CONT")]


def test_sudo_that_is_not_allowed(
    session: subprocess.Popen[bytes], sudo: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who cannot be told is named."""
    (sudo.parent / "sudo").write_text("#!/bin/sh\necho a password is required >&2\nexit 1\n")
    left = dib.kill(session.pid, 0.0)
    assert len(left) == 3
    assert "a password is required" in caplog.text
    assert str(session.pid) in caplog.text
    os.killpg(session.pid, signal.SIGKILL)
