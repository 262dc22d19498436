# SPDX-License-Identifier: Apache-2.0
"""The benchmark suite runs: one small scenario, from the command line to JSON, table and plot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)


def test_quick_run(tmp_path: Path) -> None:
    """Ours alone: what needs the released package cannot be said, the rest can."""
    done = run("--quick", "--no-legacy", "single", "--json", str(tmp_path))
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "results.json").read_text())
    assert [row["candidate"] for row in document["rows"]] == ["ours", "limit"]
    assert document["problems"] == {}
    verdicts = {verdict["goal"]: verdict["met"] for verdict in document["goals"]["single"]}
    assert verdicts["p50: 20x better than released"] is None
    assert None not in [met for goal, met in verdicts.items() if "released" not in goal]
    assert (tmp_path / "single.svg").exists()
    assert "single: One request, a static node is ready" in done.stdout
    assert "1/1 single: ours" in done.stderr


def test_unknown_scenario() -> None:
    done = run("no-such-thing")
    assert done.returncode == 2
    assert "there is no scenario 'no-such-thing'; there are: single, burst" in done.stderr
