# SPDX-License-Identifier: Apache-2.0
"""Run tox environments beside each other, each within its time budget (``tools/budgets.py``).

When an environment has ended, what matters of it is shown in one piece; all that it printed is kept in ``.tox/output``.
All environments run, also when one failed. In the end a table has the time of each beside its budget. Below it the
tests that failed are shown once more, with the ends of their failures. A few tests that failed are run a second time
(``tools/second_runs.py``). Exit code 1 when an environment failed or took longer than its budget, or all together took
longer than theirs.

``--kubernetes`` adds the tests on a real Kubernetes, ``--cloud`` those on a real OpenStack, ``--builds`` those with
real image builds, ``--containers`` those of the images of containers, ``--debian`` those in a fresh Debian, ``--all``
what is slow. ``--spent SECONDS`` were spent of the whole budget already.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from budgets import (
    BEFORE_A_RELEASE,
    ON_A_CLOUD,
    ON_KUBERNETES,
    ROWS,
    TOTAL_BUDGET,
    TOTAL_BUDGET_OF_ALL,
    WITH_BUILDS,
    WITH_CONTAINERS,
    WITH_DEBIAN,
    Environment,
)
from environment_report import complaints, ending, section, table
from environment_runs import Result, Run, Runner
from second_runs import SecondRuns


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Run the default tox environments within their time budgets.")
    parser.add_argument("--kubernetes", action="store_true", help="the tests on a real Kubernetes, too")
    parser.add_argument("--cloud", action="store_true", help="the tests on a real OpenStack, too")
    parser.add_argument("--builds", action="store_true", help="the tests with real image builds, too")
    parser.add_argument("--containers", action="store_true", help="the tests of the images of containers, too")
    parser.add_argument("--debian", action="store_true", help="the tests in a fresh Debian, too")
    parser.add_argument("--all", action="store_true", help="what is slow, too; with a larger budget for the whole")
    parser.add_argument("--spent", type=float, default=0.0, help="seconds that were spent of the whole budget already")
    options = parser.parse_args(arguments)
    top, work = Path.cwd(), Path(".tox")
    output, junit, unstable = work / "output", work / "junit", work / "unstable"
    for old in (junit, unstable):
        shutil.rmtree(old, ignore_errors=True)
    output.mkdir(parents=True, exist_ok=True)
    tox = [str(Path(sys.executable).parent / "tox"), "run", "--colored", "no", "-e"]

    def start(environment: Environment) -> Run:
        print(f"{environment.name}: started", flush=True)
        # The tests wait for each other and for servers; what only computes gives way to them.
        polite = [] if environment.tests else ["nice", "-n", "5"]
        return Run(environment, [*polite, *tox], output)

    def start_again(environment: Environment, pytest_arguments: Sequence[str], suffix: str) -> Run:
        print(f"{environment.name}: its failed tests are run once more", flush=True)
        return Run(environment, tox, output, ["--", *pytest_arguments], suffix)

    def show(run: Run, result: Result) -> None:
        print("\n".join(section(run, result, junit, top)), flush=True)

    second_runs = SecondRuns(start_again, junit, unstable, top)
    rows = [[*ROWS[0], *additional(options)], [*ROWS[1], *beside(options)]]
    budget = TOTAL_BUDGET_OF_ALL if options.all else TOTAL_BUDGET
    # As a terminal's Ctrl-C: nothing is left running. SIGINT too: a shell's background job begins with it ignored, and
    # so would the tests, some of which send it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic() - options.spent
    results = Runner(rows, start, show, budget - options.spent, second_runs.after).run()
    seconds = time.monotonic() - began
    wrong = complaints(results, seconds, junit, budget)
    print("\n".join(["", table(results, seconds, budget), *wrong]))
    print("\n".join(ending(results, second_runs.unstable, junit, output, top)), flush=True)
    return 1 if wrong or any(result.code != 0 for result in results) else 0


def beside(options: argparse.Namespace) -> list[Environment]:
    """Environments that run after the default ones of the second row."""
    return [ON_KUBERNETES] if options.kubernetes else []


def additional(options: argparse.Namespace) -> list[Environment]:
    """Environments that run after the default ones of the first row."""
    chosen = (
        (options.cloud, [ON_A_CLOUD]),
        (options.builds, [WITH_BUILDS]),
        (options.containers, [WITH_CONTAINERS]),
        (options.debian, WITH_DEBIAN),
        (options.all, BEFORE_A_RELEASE),
    )
    return [environment for wanted, environments in chosen if wanted for environment in environments]


if __name__ == "__main__":
    sys.exit(main())
