# SPDX-License-Identifier: Apache-2.0
"""benchmarks.suite: tables, JSON, plots, statistics, progress."""

from __future__ import annotations

import io
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.suite import results as store
from benchmarks.suite.goals import Bound, TimesReleased
from benchmarks.suite.model import OURS, RELEASED, Results
from benchmarks.suite.plots import bar_rows, draw, panels
from benchmarks.suite.progress import Progress
from benchmarks.suite.report import report, summary
from benchmarks.suite.statistics import median, percentile, rounded
from tests.unit.benchmarks.example import row, rows, scenario

GOALS = (TimesReleased("rate", 4), Bound("cpu", at_most=1))


@pytest.fixture
def results() -> Results:
    return Results({"quick": True}, {"write_ms": 0.5}, list(rows()))


def test_table(results: Results) -> None:
    """Figures, ratios, the distance to the limit, goals."""
    lines = report(results, [scenario(*GOALS, limit_note="half of it")]).splitlines()
    assert lines == [
        "Measured without a launcher: write ms 0.5",
        "",
        "example: An example",
        "                            requests/s  CPU ms",
        "  released                          10      20",
        "  ours                              50       4",
        "  limit                            100",
        "    x better than released         5.0     5.0",
        "    x the limit                   2.00",
        "  limit: half of it",
        "  goal requests/s: 4x better than released: 5.0x, met",
        "  goal CPU <= 1 ms: 4, NOT MET",
    ]


def test_summary(results: Results) -> None:
    assert summary(results, [scenario(*GOALS)]).splitlines() == [
        "1 of 2 goals met",
        "  example: goal CPU <= 1 ms: 4, NOT MET",
    ]


def test_what_failed_is_shown(results: Results) -> None:
    results.problems["example, ours"] = "RuntimeError: the launcher ended"
    assert "  example, ours: RuntimeError: the launcher ended" in report(results, [scenario()])


def test_json_and_back(results: Results, tmp_path: Path) -> None:
    path = store.write(tmp_path / "new", results, [scenario(*GOALS)])
    assert store.load(path) == results


def test_quick_sizes() -> None:
    assert scenario().size(quick=False) == {"requests": 100, "hosts": 10}
    assert scenario().size(quick=True) == {"requests": 5, "hosts": 10}


def test_panels() -> None:
    """A bar for what was measured, in the same place in each picture."""
    found = panels(scenario(), rows())
    assert [panel.title for panel in found] == ["requests/s (more is better)", "CPU ms"]
    assert found[1].series == {RELEASED: (20,), OURS: (4,)}
    assert bar_rows(found) == [("", RELEASED), ("", OURS), ("", "limit")]
    assert found[0].logarithmic
    assert not found[1].logarithmic


def test_plots_are_svg_and_the_same_each_time(results: Results, tmp_path: Path) -> None:
    lines = scenario(name="lines", series=True)
    results.rows.extend(
        type(found)("lines", case, found.candidate, found.values) for case in ("100", "1000") for found in rows()
    )
    first, second = (draw(tmp_path / name, results, [scenario(), lines]) for name in ("a", "b"))
    assert [path.name for path in first] == ["example.svg", "lines.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert ElementTree.parse(first[0]).getroot().tag.endswith("svg")


def test_statistics() -> None:
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([1, 2], 0.99) == 2
    assert median([4, 1, 9]) == 4
    assert rounded({"a": 1234.567, "b": None, "c": 0.0012345}) == {"a": 1235, "c": 0.001234}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress() -> None:
    """A counter only where it can move."""
    plain, terminal = io.StringIO(), Terminal()
    for stream in (plain, terminal):
        progress = Progress(stream)
        progress.step("measuring")
        progress.count(10, 10, "requests")
        progress.step("next")
    assert plain.getvalue().splitlines() == ["[00:00] measuring", "[00:00] next"]
    assert "10/10 requests" in terminal.getvalue()
    assert row(OURS).get("rate") is None
