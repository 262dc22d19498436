# SPDX-License-Identifier: Apache-2.0
"""The command lines of the programs, how they end, what they import, and what shells complete (reference/commands)."""

from __future__ import annotations

import argparse
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from nodepool.builder.progress import STOP_TIMEOUT_SECONDS
from nodepool.cmd import builder, cli, launcher
from nodepool.cmd.app import CommandError, run
from nodepool.cmd.cli import duration, moment
from nodepool.cmd.cli import ended as end_options
from nodepool.cmd.session import end_of
from nodepool.driver.registry import PATH_VARIABLE
from nodepool.exceptions import ConfigError, ZKLockException
from nodepool.logconfig import LogConfigError
from tests.support.launcher import ROOT
from tests.support.tables import rows
from tests.support.terminal import shell_on_terminal

PROGRAMS: Final[dict[str, ModuleType]] = {"nodepool": cli, "nodepool-launcher": launcher, "nodepool-builder": builder}
NAMES: Final = [name for members in cli.COMMANDS.values() for one in members for name in one.names]


def ended(main: Callable[[list[str]], int], *arguments: str) -> int:
    """Status of a program that argparse ends."""
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize("main", [cli.main, launcher.main, builder.main])
def test_every_program(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> None:
    """reference/commands 1 and 2: release and help; usage and status 2."""
    assert ended(main, "--version") == 0
    assert capsys.readouterr().out.startswith("Nodepool version: ")
    assert ended(main, "-h") == 0
    assert "/etc/nodepool/nodepool.yaml" in capsys.readouterr().out
    assert ended(main, "--nonsense") == 2


@rows(__file__, "test_mistyped")
def test_mistyped(line: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One short line on standard error."""
    assert ended(cli.main, *line.split()) == 2
    assert capsys.readouterr() == ("", f"nodepool: {told}\n")


@rows(__file__, "test_wrong_usage")
def test_wrong_usage(line: str) -> None:
    assert ended(cli.main, *line.split()) == 2


@pytest.mark.parametrize("line", ["--build-workers -1", "--build-workers many", "--stop-timeout=-1"])
@pytest.mark.parametrize("also", ["", "--stop-timeout=inf", "--stop-timeout=nan", "--stop-timeout=soon"])
def test_odd_numbers(line: str, also: str) -> None:
    assert ended(builder.main, *(also or line).split()) == 2


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    """reference/commands 2: help with all commands, status 1."""
    assert cli.main([]) == 1
    assert set(NAMES) <= set(re.split(r"[\s()]+", capsys.readouterr().out.split("commands:")[1]))


@pytest.mark.parametrize("name", NAMES)
def test_each_command_alone(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is as beside the others; its help has a sentence and an example."""
    assert ended(cli.main, name, "--help") == 0
    out = capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.make_parser().parse_args([name, "--help"])
    assert capsys.readouterr().out == out
    assert "example" in out.lower()
    assert "." in out.partition("options:")[0]


def test_a_command_imports_no_other() -> None:
    """reference/commands 2: commands start quickly; the help knows all of them."""
    code = "import sys, nodepool.cmd.cli as c; c.make_parser(); sys.exit('nodepool.cmd.nodes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
    assert cli.make_parser("nonsense").format_help() == cli.make_parser().format_help()
    for members in cli.COMMANDS.values():
        assert all(callable(one.function) for one in members)


@pytest.mark.parametrize(
    ("options", "level"), [("", "INFO"), ("--debug", "DEBUG"), ("-l FILE", "WARNING"), ("-l FILE --debug", "DEBUG")]
)
def test_logging(options: str, level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """reference/commands 2: ``--debug`` wins, whatever ``-l`` says."""
    path = tmp_path / "log.yaml"
    path.write_text("{version: 1, root: {level: WARNING}, disable_existing_loggers: false}")
    assert cli.main([*options.replace("FILE", str(path)).split(), "completion", "bash"]) == 0
    assert logging.getLevelName(logging.getLogger("nodepool").getEffectiveLevel()) == level
    assert "--debug" in options or capsys.readouterr().err == ""


@pytest.mark.parametrize("line", ["-c ~/a list", "list -c ~/a", "-c /y list -c b/../a", "-l /d -s b/../c -c a list"])
def test_files(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """reference/commands 1: before and after a command; absolute, with ~ expanded."""
    monkeypatch.setenv("HOME", "/")
    monkeypatch.chdir("/")
    found = cli.make_parser().parse_args(line.split())
    others = ("/c", "/d") if "-s" in line else (None, None)
    assert (found.config, (found.secure, found.logconfig), found.debug) == ("/a", others, False)
    assert cli.make_parser().parse_args(["list"]).config == "/etc/nodepool/nodepool.yaml"


@rows(__file__, "test_abbreviations_of_11")
def test_abbreviations_of_11(program: str, line: str, options: list[str]) -> None:
    """reference/commands 1: an abbreviation that Nodepool 11 took means the same."""

    def parsed(*words: str) -> dict[str, Any]:
        parser = PROGRAMS[program].make_parser(*line.split()[:1])
        found: dict[str, Any] = vars(parser.parse_args([*line.split(), *" ".join(words).split()]))
        return found

    for option in options:
        name, _, value = option.partition(" ")
        others = [other for other in options if other != option] if line == "image-delete" else []
        full = parsed(*others, option)
        for length in range(3, len(name) + 1):
            assert parsed(*others, f"{name[:length]} {value}") == full, name[:length]


@rows(__file__, "test_daemons")
def test_daemons(program: str, line: str, values: dict[str, Any]) -> None:
    """reference/commands 3"""
    found = vars(PROGRAMS[program].make_parser().parse_args(line.split()))
    assert line or found.get("stop_timeout", STOP_TIMEOUT_SECONDS) == STOP_TIMEOUT_SECONDS
    assert {name: found[name] for name in values} == values


def failing(error: BaseException) -> Callable[[], int]:
    def work() -> int:
        raise error

    return work


@pytest.mark.parametrize(
    ("work", "status", "out", "err"),
    [
        *((lambda: 0, 0, "", ""), (lambda: 1, 1, "", ""), (failing(KeyboardInterrupt()), 130, "", "")),
        (failing(ZKLockException("it is locked")), 1, "", "prog: it is locked\n"),
        (failing(LogConfigError("bad log")), 1, "", "prog: bad log\n"),
        (failing(OSError(2, "no such file")), 1, "", "prog: [Errno 2] no such file\n"),
        (failing(ValueError("odd")), 1, "", "prog: unexpected error: ValueError: odd\n"),
        (failing(ConfigError("a:1: one\na:2: two")), 1, "", "prog: a:1: one\nprog: a:2: two\n"),
        # Scripts for the released Nodepool look for "not found" on stdout; a hint must not change it.
        (failing(CommandError("1 not found", answer=True)), 1, "1 not found\n", ""),
        (failing(CommandError("b not found", answer=True, hint="images: d")), 1, "b not found\n", "prog: images: d\n"),
        # Causes come from clouds and from what others stored in ZooKeeper: no escape sequence reaches the terminal.
        (failing(CommandError("one\x1b[2J\ntwo")), 1, "", "one [2J\ntwo\n"),
        (failing(ZKLockException("one\x1b[2J")), 1, "", "prog: one [2J\n"),
    ],
)
def test_end(work: Callable[[], int], status: int, out: str, err: str, capsys: pytest.CaptureFixture[str]) -> None:
    """reference/commands 2: a mistake gives exit status 1 and one line for each problem, not a traceback."""
    assert run("prog", work) == status
    assert capsys.readouterr() == (out, err)


@rows(__file__, "test_durations")
def test_durations(text: str, seconds: float | str) -> None:
    if not isinstance(seconds, str):
        assert duration(text) == seconds
        return
    with pytest.raises(argparse.ArgumentTypeError, match=seconds):
        duration(text)


@rows(__file__, "test_moments")
def test_moments(text: str, when: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In local time, here five hours behind UTC, unless an offset says otherwise; without a date it is the next one."""
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "XXX5")
        time.tzset()
        if when is None:
            with pytest.raises(argparse.ArgumentTypeError, match="is no moment; write"):
                moment(text)
        elif when == "next":
            now = time.time()
            found = moment(text)
            assert now < found <= now + 86400 + 3600
            assert datetime.fromtimestamp(found, UTC).astimezone().strftime("%H:%M") == text.zfill(5)
        else:
            assert moment(text) == datetime.fromisoformat(f"{when}+00:00").timestamp()
    time.tzset()


@rows(__file__, "test_ends")
def test_ends(line: str, end: Any) -> None:
    parser = argparse.ArgumentParser()
    end_options("it ends")(parser)
    if isinstance(end, str):
        with pytest.raises(CommandError if end == "error" else SystemExit):
            end_of(parser.parse_args(line.split()), 1e9)
    else:
        assert end_of(parser.parse_args(line.split()), 1e9) == end


#: By driver. Its library is imported when the provider is made.
PROVIDERS: Final = {
    "static": "- {name: lab, driver: static, pools: [{name: main, nodes: [{name: h, labels: [small], host-key: k}]}]}",
    "aws": "- {name: north, driver: aws, region-name: eu-north-1, cloud-images: [{name: debian, image-id: ami-1, "
    "username: admin}], pools: [{name: main, labels: [{name: small, cloud-image: debian, instance-type: t3.small, "
    "key-name: zuul}]}]}",
}


@rows(__file__, "test_no_heavy_library")
def test_no_heavy_library(tmp_path: Path, program: str, heavy: list[str]) -> None:
    """Libraries of clouds, builds, terminals and web pages only when they are used; for help none. A list does not even
    load a driver; there are no certificates, so it ends before it connects, and after it has read the configuration.
    """
    path = tmp_path / "nodepool.yaml"
    path.write_text(
        "zookeeper-servers: [{host: localhost}]\nzookeeper-tls: {cert: c, key: k, ca: a}\nlabels: [{name: small}]\n"
        "providers:\n" + "\n".join(PROVIDERS.values())
    )
    driver = tmp_path / "drivers" / "cloud"
    driver.mkdir(parents=True)
    # An extra driver that is offered, but not configured.
    (driver / "__init__.py").write_text("import sys\nsys.modules['boto3'] = sys\n")
    code = f"import sys; FILE = {str(path)!r}\n{program}\nsys.exit(', '.join(set({heavy}) & set(sys.modules)) or 0)"
    environment = {**os.environ, PATH_VARIABLE: str(driver.parent)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 0, done.stderr


FULL: Final = "/dev/full"
DAEMON: Final = """
import contextlib, logging, sys, threading
from types import SimpleNamespace
from nodepool.cmd import app, daemon

def serve(options):
    logging.getLogger("nodepool.test").error("one for the log")
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            print("a line", file=stream)
    {end}

options = SimpleNamespace(debug=False, foreground=True, logconfig=None)
sys.exit(daemon.finish(app.run("prog", lambda: daemon.run(options, "", serve, None))))
"""


def redirected(redirection: str, *command: str, unbuffered: str = "") -> tuple[int, str]:
    """Exit status, and what was written to where ``redirection`` does not lead."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": unbuffered}
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, *command]
    done = subprocess.run(
        shell, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.skipif(not os.path.exists(FULL), reason=f"no {FULL}")
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@rows(__file__, "test_daemon_whose_output_cannot_be_written")
def test_daemon_whose_output_cannot_be_written(end: str, status: int, unbuffered: str) -> None:
    """As on a full disk: whatever the end is, it is what systemd sees; what can be written is."""
    command = ("-c", DAEMON.format(end=end))
    for redirection in (f">{FULL} 2>&1", ">&- 2>&-"):
        assert redirected(redirection, *command, unbuffered=unbuffered) == (status, "")
    returned, told = redirected(f">{FULL}", *command, unbuffered=unbuffered)
    assert returned == status
    assert "a line" in told
    assert "Exception ignored" not in told


@pytest.mark.skipif(not os.path.exists(FULL), reason=f"no {FULL}")
def test_command_whose_output_cannot_be_written() -> None:
    """reference/commands 2: an answer that does not arrive is a failure, in one line."""
    for unbuffered in ("", "1"):
        status, told = redirected(f">{FULL}", "-m", "nodepool.cmd.cli", "completion", "bash", unbuffered=unbuffered)
        assert (status, told) == (1, "nodepool: [Errno 28] No space left on device\n")


@pytest.fixture
def script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script of a shell, beside a file ``a-file``."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "a-file").touch()
    path = tmp_path / f"completion.{shell}"
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    if shell == "zsh":
        text = f"autoload -Uz compinit && compinit -u -d '{tmp_path}/dump'\neval {shlex.quote(text)}\n"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_tab_key(shell: str, script: Path) -> None:
    """What is typed, and the arguments that the program gets. Where nothing else is known there are files."""
    typed = {
        "nodepool comple\t z\t": "completion zsh",
        "nodepool -c file list --old\t 1h": "-c file list --older-than 1h",
        "nodepool list -o wi\t": "list -o wide",
        "nodepool list --format wi\t": "list --format wide",
        "nodepool hold 1 --rea\t why": "hold 1 --reason why",
        "nodepool hold --rea\t why 1": "hold --reason why 1",
        "nodepool -c a-fi\t lis\t": "-c a-file list",
        "nodepool import-image-data a-fi\t": "import-image-data a-file",
    }
    with shell_on_terminal(shell, script, "nodepool") as terminal:
        assert {line: " ".join(terminal.arguments(line)) for line in typed} == typed
