# SPDX-License-Identifier: Apache-2.0
"""``tools/demo --cloud`` and ``--hosts`` on a terminal of 80 columns."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.terminal import without_escapes

ROOT = Path(__file__).parents[3]
COLUMNS = 80

pytestmark = pytest.mark.timeout(1000)


def on_terminal(monkeypatch: pytest.MonkeyPatch, programs: Path, *options: str) -> list[str]:
    """The lines that it writes; it must end well."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tools'}:{ROOT}")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from demo_lib.processes import run_on_terminal

    command: list[str | Path] = [sys.executable, "-m", "demo_lib", "--programs", programs, "--once", *options]
    return without_escapes(run_on_terminal(command, COLUMNS, timeout_seconds=900)).splitlines()


def test_cloud(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_terminal(monkeypatch, programs, "--cloud")
    text = "\n".join(lines)
    for words in ("room.instances", "provider.circuit-open", "The cloud is back", "The cloud has 0 servers now."):
        assert words in text
    assert "Nothing is left running" in text
    assert "nodepool-builder" not in text
    assert [line for line in lines if len(line) > COLUMNS and "/" not in line] == []


def test_hosts(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(on_terminal(monkeypatch, programs, "--hosts"))
    assert "All 5 nodes are ready again" in text
    assert os.linesep + "   $ nodepool image-list" not in text
