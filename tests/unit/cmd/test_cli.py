# SPDX-License-Identifier: Apache-2.0
"""The command line: options that come before the command, and where commands come from."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from nodepool import logconfig
from nodepool.cmd import cli


@pytest.mark.parametrize(
    ("arguments", "used"),
    [
        ([], ["INFO"]),
        (["--debug"], ["DEBUG"]),
        (["-l", "/etc/log.yaml"], ["/etc/log.yaml"]),
        (["-l", "/etc/log.yaml", "--debug"], ["DEBUG"]),
    ],
)
def test_logging(arguments: list[str], used: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """reference/commands 2: ``--debug`` wins, whatever ``-l`` says."""
    seen: list[Any] = []
    monkeypatch.setattr(logconfig, "load_config", seen.append)
    monkeypatch.setattr(logconfig, "apply_config", seen.append)
    cli.set_up_logging(cli.make_parser().parse_args([*arguments, "list"]))
    assert [given if isinstance(given, str) else _level(given) for given in seen] == used


def _level(config: dict[str, Any]) -> str:
    """Level of our own loggers in a dictConfig dictionary."""
    level: str = config["loggers"].get("nodepool", config["root"])["level"]
    return level


@pytest.mark.parametrize(("module", "function", "names"), cli.GROUPS)
def test_commands_of_a_module(module: str, function: str, names: tuple[str, ...]) -> None:
    """What the table says of a module is what the module adds."""
    added: list[str] = []

    def add(name: str, aliases: Sequence[str] = (), **_settings: Any) -> argparse.ArgumentParser:
        added.extend([name, *aliases])
        return argparse.ArgumentParser()

    getattr(importlib.import_module(f"nodepool.cmd.{module}"), function)(add)
    assert tuple(added) == names


@pytest.mark.parametrize("name", [name for *_, names in cli.GROUPS for name in names])
def test_a_command_alone_is_as_with_all(name: str) -> None:
    assert _command(cli.make_parser(name), name).format_help() == _command(cli.make_parser(), name).format_help()


def _command(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    group = parser._subparsers
    assert group is not None
    commands = group._group_actions[0].choices
    assert isinstance(commands, dict)
    found: argparse.ArgumentParser = commands[name]
    return found


@pytest.mark.parametrize("command", [None, "completion", "nonsense"])
def test_all_commands(command: str | None) -> None:
    """Whoever tells of all of them needs all of them."""
    assert cli.make_parser(command).format_help() == cli.make_parser().format_help()


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["list"], "list"),
        (["list", "hold"], "list"),
        (["-c", "hold", "--debug", "-s", "x", "-l", "y", "list", "--detail"], "list"),
        (["nonsense", "list"], "nonsense"),
        ([], None),
        (["--debug"], None),
        (["-c"], None),
        (["-chold", "list"], None),
        (["--help", "list"], None),
        (["--", "list"], None),
    ],
)
def test_command_in(arguments: list[str], command: str | None) -> None:
    assert cli.command_in(arguments) == command


def test_a_command_imports_no_other() -> None:
    """reference/commands 2: commands start quickly."""
    code = (
        "import sys, nodepool.cmd.cli as c; c.make_parser('explain'); print({'nodepool.cmd.nodes'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout == "set()\n"
