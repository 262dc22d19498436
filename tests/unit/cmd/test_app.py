# SPDX-License-Identifier: Apache-2.0
"""nodepool.cmd.app: how a program ends."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nodepool.cmd import app
from nodepool.exceptions import ConfigError, ZKLockException
from nodepool.logconfig import LogConfigError


def failing(error: BaseException) -> int:
    def work() -> int:
        raise error

    return app.run("prog", work)


def test_status_is_passed_on() -> None:
    assert app.run("prog", lambda: 0) == 0
    assert app.run("prog", lambda: 1) == 1


@pytest.mark.parametrize(
    "error", [ZKLockException("it is locked"), LogConfigError("bad log"), OSError(2, "no such file"), ValueError("odd")]
)
def test_error_is_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """reference/commands 2: a mistake gives exit status 1 and one line, not a traceback."""
    assert failing(error) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert str(error) in err


def test_every_problem_of_a_configuration_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(ConfigError("a.yaml:1: one\na.yaml:2: two")) == 1
    assert capsys.readouterr().err.splitlines() == ["prog: a.yaml:1: one", "prog: a.yaml:2: two"]


@pytest.mark.parametrize("error", [ZKLockException, app.CommandError, ValueError])
def test_no_escape_sequence_reaches_the_terminal(error: type[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    """Causes come from clouds and from what others stored in ZooKeeper."""
    assert failing(error("one\x1b[2J\ntwo")) == 1
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert len(err.splitlines()) == 2


def test_answers_go_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts for the released Nodepool look for "not found" on stdout."""
    assert failing(app.CommandError("Node id 1 not found", answer=True)) == 1
    assert capsys.readouterr() == ("Node id 1 not found\n", "")


def test_hint_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """What there is instead must not change the answer that scripts know."""
    assert failing(app.CommandError("Build a-b not found", answer=True, hint="images: deb")) == 1
    assert capsys.readouterr() == ("Build a-b not found\n", "prog: images: deb\n")


def test_interrupt_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(KeyboardInterrupt()) == 130
    assert capsys.readouterr() == ("", "")


def test_closed_pipe_is_quiet() -> None:
    """nodepool list | head"""
    code = "from nodepool.cmd import app; import sys; sys.exit(app.run('p', lambda: print('x' * 10**6) or 0))"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as stderr:
        assert stderr.read() == b""
    assert process.wait(30) == 1


def test_paths_are_made_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    """reference/commands 1: absolute, with ~ expanded."""
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.chdir("/")
    options = app.make_parser("prog", "").parse_args(["-c", "~/a.yaml", "-s", "b/../c", "-l", "/d"])
    assert (options.config, options.secure, options.logconfig) == ("/home/somebody/a.yaml", "/c", "/d")


def test_defaults() -> None:
    """reference/commands 1"""
    options = app.make_parser("prog", "").parse_args([])
    assert (options.config, options.secure, options.logconfig) == ("/etc/nodepool/nodepool.yaml", None, None)
