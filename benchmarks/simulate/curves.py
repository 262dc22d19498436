# SPDX-License-Identifier: Apache-2.0
"""The curves of ``tools/simulate`` as an SVG picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.simulate.extrapolate import Model, highest_rate
from benchmarks.simulate.fleet import Cost

#: Ensembles of the curves, and their colours, which differ in print and for the colour-blind, too.
ENSEMBLES = {1: "#b0b0b0", 2: "#e0a030", 5: "#2a6fbb", 10: "#333333"}
MOST_LAUNCHERS = 50


def draw(path: Path, model: Model, simulated: Sequence[Cost], checked: Sequence[Cost], factor: float) -> None:
    """Write the picture: the cost of a request, and the rate that launchers and ensembles can serve.

    :param factor: CPU of real launchers over that of simulated ones.
    """
    # Only who draws needs it; and without a display.
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "nodepool"
    from matplotlib import pyplot

    figure, (cost, rate) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    launchers = range(1, max(entry.launchers for entry in simulated) + 1)
    cost.plot(launchers, [model.cpu.at(number) * 1000 for number in launchers], color="#2a6fbb", label="extrapolated")
    points = [entry.cpu * factor * 1000 for entry in simulated]
    cost.plot([entry.launchers for entry in simulated], points, "o", color="#2a6fbb", label="simulated, scaled")
    if checked:
        points = [entry.cpu * 1000 for entry in checked]
        cost.plot([entry.launchers for entry in checked], points, "x", color="#333333", label="real")
    cost.set(title="CPU of a request, all launchers", xlabel="launchers on one ensemble", ylabel="ms", ylim=(0, None))
    cost.legend()
    for ensembles, colour in ENSEMBLES.items():
        numbers = range(ensembles, MOST_LAUNCHERS + 1)
        rates = [ensembles * highest_rate(model, number / ensembles) for number in numbers]
        rate.plot(numbers, rates, color=colour, label=f"{ensembles} ensemble{'s' if ensembles > 1 else ''}")
    rate.set(title="Highest rate", xlabel="launchers", ylabel="requests/s", yscale="log")
    rate.legend()
    for axes in (cost, rate):
        axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
