# SPDX-License-Identifier: Apache-2.0
"""``nodepool completion``: every command and every option, in each shell."""

from __future__ import annotations

import subprocess

import pytest

from nodepool.cmd import cli
from nodepool.cmd.completion import SHELLS

pytestmark = pytest.mark.usefixtures("clean_logging")


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
        assert (f"        {name}) words=" if shell != "fish" else f"-a {name} -d ") in text


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("nodepool req", ["request-list", "requests"]),
        ("nodepool hold --wh", ["--when-free"]),
        ("nodepool -c file list --old", ["--older-than"]),
        ("nodepool list -o wi", ["wide"]),
        ("nodepool completion z", ["zsh"]),
    ],
)
def test_bash_completes(line: str, answers: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = line.split()
    code = f"{printed('bash', capsys)}\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _nodepool\n"
    code += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.splitlines(), done.stderr) == (answers, "")


def test_fish_quotes_texts(capsys: pytest.CaptureFixture[str]) -> None:
    for line in printed("fish", capsys).splitlines():
        assert line.startswith("complete -c nodepool -n ")
        assert line.replace("\\\\", "").replace("\\'", "").count("'") % 2 == 0
