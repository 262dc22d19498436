# SPDX-License-Identifier: Apache-2.0
"""The options of the command line that come before the command."""

from __future__ import annotations

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
