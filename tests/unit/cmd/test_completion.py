# SPDX-License-Identifier: Apache-2.0
"""``nodepool completion``: every command and every option, in each shell."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from nodepool.cmd import cli
from nodepool.cmd.cli import SHELLS
from tests.support.shell_terminal import shell_on_terminal

pytestmark = pytest.mark.usefixtures("clean_logging")

#: What somebody types, and the arguments that the program gets.
TYPED = {
    "nodepool comple\t z\t": ["completion", "zsh"],
    "nodepool -c file list --old\t 1h": ["-c", "file", "list", "--older-than", "1h"],
    "nodepool list -o wi\t": ["list", "-o", "wide"],
    "nodepool list --format=wi\t": ["list", "--format=wide"],
    "nodepool hold --wh\t 1": ["hold", "--when-free", "1"],
    # Where nothing else is known there are files, also before the command; beside commands there are none.
    "nodepool -c a-fi\t lis\t": ["-c", "a-file", "list"],
    "nodepool import-image-data a-fi\t": ["import-image-data", "a-file"],
}


def needs(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


@pytest.fixture
def script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script of a shell, beside a file ``a-file``."""
    needs(shell)
    (tmp_path / "a-file").touch()
    path = tmp_path / f"completion.{shell}"
    path.write_text(printed(shell, capsys), encoding="utf-8")
    return path


def printed(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


def commands() -> list[str]:
    """Names of all commands, as the usage shows them."""
    usage = cli.make_parser()._subparsers
    assert usage is not None
    (group,) = usage._group_actions
    return list(group.choices or ())


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_known(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(shell, capsys)
    found = commands()
    assert {"list", "nodes", "requests", "status", "explain", "pause", "completion"} <= set(found)
    for name in found:
        assert (f"        {name}) offered=" if shell != "fish" else f"-a {name} -d ") in text


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_tab_key(shell: str, script: Path) -> None:
    with shell_on_terminal(shell, script, "nodepool") as terminal:
        assert {line: terminal.arguments(line) for line in TYPED} == TYPED


@pytest.mark.parametrize("shell", ["fish"])
@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("nodepool req", ["request-list", "requests"]),
        # No files, of which one begins so.
        ("nodepool a", ["alien-image-list"]),
        ("nodepool -c a-file lis", ["list"]),
        ("nodepool -c list lis", ["list"]),
        ("nodepool -c a-f", ["a-file"]),
        ("nodepool --deb", ["--debug"]),
        ("nodepool hold --wh", ["--when-free"]),
        ("nodepool list --older-than 1h --lab", ["--label"]),
        ("nodepool list -o wi", ["wide"]),
        ("nodepool list --format=wi", ["--format=wide"]),
        ("nodepool completion z", ["zsh"]),
        ("nodepool import-image-data a-f", ["a-file"]),
    ],
)
def test_fish_completes(line: str, answers: list[str], script: Path, shell: str) -> None:
    code = f"source {script}; complete -C '{line}'"
    command = [shell, "--no-config", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd=script.parent)
    found = [answer.partition("\t")[0] for answer in done.stdout.splitlines()]
    assert (sorted(found), done.stderr) == (answers, "")


def test_fish_quotes_texts(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line for line in printed("fish", capsys).splitlines() if line.startswith("complete ")]
    assert len(lines) > len(commands())
    for line in lines:
        assert line.startswith("complete -c nodepool -n ")
        assert line.replace("\\\\", "").replace("\\'", "").count("'") % 2 == 0


@pytest.mark.parametrize("shell", SHELLS)
def test_what_help_does_not_tell_is_not_offered(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Abbreviations of Nodepool 11."""
    text = printed(shell, capsys).replace("'", " ").replace("-l ", "--")
    assert "--detail " in text
    for option in ("--de", "--no"):
        assert f"{option} " not in text
