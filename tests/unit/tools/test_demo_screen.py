# SPDX-License-Identifier: Apache-2.0
"""What tools/demo writes has the width of its terminal; elsewhere it has the form for other programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from demo_lib import screen
from demo_lib.errors import DemoError
from demo_lib.processes import run_on_terminal

#: Stands for nodepool: says whether it writes to a terminal, and how wide that is.
PROGRAM = "import os, sys; print(sys.stdout.isatty() and os.get_terminal_size().columns, *sys.argv[1:])"


@pytest.fixture
def tables(tmp_path: Path) -> screen.Tables:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="ascii")
    return screen.Tables([sys.executable, program])


def test_no_terminal(tables: screen.Tables, capsys: pytest.CaptureFixture[str]) -> None:
    tables.show("list --detail", "list --detail")
    assert capsys.readouterr().out == "\n   $ nodepool list --detail\n   False list --detail\n"


def test_terminal(tables: screen.Tables, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "terminal_columns", lambda: 50)
    tables.show("list")
    assert capsys.readouterr().out == "\n   $ nodepool list\n   47 list\n"
    tables.show("explain " + "word " * 20)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[2:])) <= 50
    assert lines[2].startswith("   47 explain word")
    assert lines[3].startswith("     word")
    show = screen.Screen()
    show.step("step " * 20)
    show.note("note " * 20)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 50


def test_failed_command() -> None:
    with pytest.raises(DemoError, match="exit code 3"):
        run_on_terminal([sys.executable, "-c", "raise SystemExit(3)"], 80)
