# SPDX-License-Identifier: Apache-2.0
"""Results as SVG pictures: bars for each scenario, lines where the cases are lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.suite.model import FLOOR, LIMIT, OURS, RELEASED, Metric, Results, Row, Scenario, cases, find

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: In the order of the bars. Colours that differ in print and for the colour-blind, too.
COLOURS = {RELEASED: "#b0b0b0", OURS: "#2a6fbb", FLOOR: "#e0a030", LIMIT: "#333333"}
#: Bars on a linear scale that differ by more than this cannot be compared by eye.
LOGARITHMIC_FROM = 8.0
#: Cases that differ by more than this are drawn on a logarithmic scale.
WIDE_FROM = 20.0
BAR_INCHES, PANEL_INCHES, INCHES_A_LETTER = 0.3, 2.0, 0.075


@dataclass(frozen=True)
class Panel:
    """One picture of a figure.

    :param series: candidate -> its value in each case, None = not measured.
    """

    title: str
    cases: tuple[str, ...]
    series: dict[str, tuple[float | None, ...]]

    @property
    def logarithmic(self) -> bool:
        values = [value for row in self.series.values() for value in row if value]
        return bool(values) and max(values) > LOGARITHMIC_FROM * min(values)


def panels(scenario: Scenario, rows: Sequence[Row]) -> list[Panel]:
    """What is drawn of a scenario: its metrics that are worth it. Pure."""
    return [panel for metric in scenario.metrics if metric.plot and (panel := _panel(metric, rows)) is not None]


def _panel(metric: Metric, rows: Sequence[Row]) -> Panel | None:
    names = tuple(cases(rows))
    found = {candidate: [find(rows, candidate, case) for case in names] for candidate in COLOURS}
    series = {
        candidate: tuple(None if row is None else row.get(metric.key) for row in of_cases)
        for candidate, of_cases in found.items()
    }
    series = {candidate: values for candidate, values in series.items() if any(value is not None for value in values)}
    better = "" if metric.more_is_better is None else " (more is better)" if metric.more_is_better else ""
    return Panel(f"{metric.heading}{better}", names, series) if series else None


def draw(directory: Path, results: Results, scenarios: Iterable[Scenario]) -> list[Path]:
    """Writes ``<scenario>.svg`` for each scenario with something to draw; returns their paths."""
    # Only who draws needs it; and without a display.
    import matplotlib

    matplotlib.use("svg")
    # The same results give the same file, with text as text.
    matplotlib.rcParams.update({"svg.hashsalt": "nodepool", "svg.fonttype": "none", "font.size": 9})
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for scenario in scenarios:
        found = panels(scenario, results.of(scenario.name))
        if found:
            paths.append(_figure(directory / f"{scenario.name}.svg", scenario, found))
    return paths


def _figure(path: Path, scenario: Scenario, found: Sequence[Panel]) -> Path:
    from matplotlib.figure import Figure

    rows = bar_rows(found)
    names = max(len(" ".join(row)) for row in rows) * INCHES_A_LETTER
    height = 2.6 if scenario.series else 1.0 + BAR_INCHES * len(rows)
    figure = Figure(figsize=(PANEL_INCHES * len(found) + names, height), layout="constrained")
    figure.suptitle(scenario.title, fontsize=10)
    all_axes = figure.subplots(1, len(found), squeeze=False, sharey=not scenario.series)[0]
    for axes, panel in zip(all_axes, found, strict=True):
        if scenario.series:
            _lines(axes, panel)
        else:
            _bars(axes, panel, rows)
        axes.set_title(panel.title, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    if not scenario.series:
        all_axes[0].set_yticks(range(len(rows)), [" ".join(row).strip() for row in rows])
        all_axes[0].invert_yaxis()
    figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def bar_rows(found: Sequence[Panel]) -> list[tuple[str, str]]:
    """Case and candidate of each bar, the same for all panels of a scenario."""
    return [
        (case, candidate)
        for number, case in enumerate(found[0].cases)
        for candidate in COLOURS
        if any(panel.series[candidate][number] is not None for panel in found if candidate in panel.series)
    ]


def _bars(axes: Axes, panel: Panel, rows: Sequence[tuple[str, str]]) -> None:
    """Horizontal bars with their values, the cases below each other."""
    for place, (case, candidate) in enumerate(rows):
        value = panel.series.get(candidate, (None,) * len(panel.cases))[panel.cases.index(case)]
        if value is not None:
            bar = axes.barh(place, value, color=COLOURS[candidate])
            axes.bar_label(bar, [f"{value:g}"], padding=2, fontsize=8)
    axes.margins(x=0.3)
    if panel.logarithmic:
        axes.set_xscale("log")
        axes.locator_params(axis="x", numticks=5)
    else:
        axes.locator_params(axis="x", nbins=4)


def _lines(axes: Axes, panel: Panel) -> None:
    """A line for each candidate over the cases, which are numbers."""
    numbers = [float(case) for case in panel.cases]
    for candidate, series in panel.series.items():
        points = [(x, y) for x, y in zip(numbers, series, strict=True) if y is not None]
        axes.plot([x for x, _ in points], [y for _, y in points], marker="o", color=COLOURS[candidate], label=candidate)
    if max(numbers) > WIDE_FROM * min(numbers):
        axes.set_xscale("log")
    axes.set_xticks(numbers, panel.cases)
    axes.minorticks_off()
    if panel.logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
