# SPDX-License-Identifier: Apache-2.0
"""Measures this launcher beside the released Nodepool 11.0.0, with the client code of a real Zuul as the load.

One run, one ZooKeeper with fsync and TLS, one candidate at a time. Figures, ratios, the distance to the limit and
the goals that are met are printed, and written as JSON with plots.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.registry import BY_NAME, SCENARIOS
from benchmarks.suite import results as store
from benchmarks.suite.model import Results, Scenario
from benchmarks.suite.plots import draw
from benchmarks.suite.progress import Progress
from benchmarks.suite.report import report, summary
from benchmarks.suite.run import run_all
from benchmarks.support.candidates import FLOOR, OURS, Candidate, legacy
from benchmarks.support.costs import measure_costs
from benchmarks.support.place import Stage
from tests.support.zookeeper import ZooKeeperServer

ROOT = Path(__file__).resolve().parents[1]


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("tools/bench", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="default: all; see --list")
    parser.add_argument("--list", action="store_true", help="show the scenarios and end")
    parser.add_argument("--quick", action="store_true", help="small sizes: a look at everything, not a measurement")
    parser.add_argument("--no-legacy", action="store_true", help="without the released package")
    parser.add_argument("--no-ours", action="store_true", help="without this launcher")
    parser.add_argument("--no-floor", action="store_true", help="without the stand-in that shows what the load costs")
    parser.add_argument("--legacy", metavar="VENV", help="virtualenv with nodepool 11.0.0")
    parser.add_argument(
        "--json", metavar="DIR", type=Path, default=ROOT / "benchmarks" / "results", help="where results go"
    )
    parser.add_argument("--plots", metavar="DIR", type=Path, help="where SVG plots go; default: as --json")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="keep the launchers' logs there")
    parser.add_argument("--show", metavar="FILE", type=Path, help="run nothing: show and plot these results")
    options = parser.parse_args(arguments)
    for name in options.scenarios:
        if name not in BY_NAME:
            parser.error(f"there is no scenario {name!r}; there are: {', '.join(BY_NAME)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 if a scenario could not be measured. Goals that are not met are no error."""
    options = parse_arguments(arguments)
    if options.list:
        for scenario in SCENARIOS:
            print(f"{scenario.name:<15} {scenario.title}")
        return 0
    scenarios = [BY_NAME[name] for name in options.scenarios] or possible()
    results = store.load(options.show) if options.show else measure(options, scenarios)
    print(report(results, scenarios))
    print(f"\n{summary(results, scenarios)}")
    directory = options.plots or (options.show.parent if options.show else options.json)
    plots = draw(directory, results, scenarios)
    print(f"{len(plots)} plots: {directory}")
    return 1 if results.problems else 0


def possible() -> list[Scenario]:
    """Scenarios that can be measured on this machine; says which are left out."""
    chosen = []
    for scenario in SCENARIOS:
        lacking = scenario.missing() if scenario.missing is not None else ""
        if lacking:
            print(f"{scenario.name} is left out: {lacking}", flush=True)
        else:
            chosen.append(scenario)
    return chosen


def measure(options: argparse.Namespace, scenarios: list[Scenario]) -> Results:
    """Runs the scenarios; results are on disk after each."""
    candidates: list[Candidate] = [] if options.no_floor else [FLOOR]
    candidates += [] if options.no_legacy else [legacy(options.legacy)]
    candidates += [] if options.no_ours else [OURS]
    progress = Progress()
    with tempfile.TemporaryDirectory(prefix="nodepool-bench-") as name:
        directory = Path(name)
        zookeeper = ZooKeeperServer(directory / "zookeeper", fsync=True)
        progress.step("starting ZooKeeper")
        zookeeper.start()
        try:
            progress.step("measuring what a write costs")
            costs = measure_costs(zookeeper)
            results = Results(settings(options.quick), costs.as_dict())
            save = partial(store.write, options.json, results, scenarios)
            stage = Stage(directory, zookeeper, progress, options.keep)
            run_all(stage, scenarios, candidates, costs, results, options.quick, save)
        finally:
            zookeeper.stop()
    progress.step(f"written: {options.json / store.FILE_NAME}")
    return results


def settings(quick: bool) -> dict[str, object]:
    """What a reader of the results must know."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "python": platform.python_version(),
        "processors": len(os.sched_getaffinity(0)),
    }


if __name__ == "__main__":
    sys.exit(main())
