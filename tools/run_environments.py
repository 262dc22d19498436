# SPDX-License-Identifier: Apache-2.0
"""Run tox environments beside each other, each within its time budget (``tools/budgets.py``).

What an environment prints is shown in one piece when it has ended, and is kept in ``.tox/output``. In the end a table
has the time of each beside its budget. All environments run, also when one failed. Exit code 1 when one failed or took
longer than its budget, or all together took longer than theirs.

``--cloud`` adds the tests on a real OpenStack, ``--builds`` those with real image builds. ``--spent SECONDS`` were
spent of the whole budget already.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from budgets import ON_A_CLOUD, ROWS, TOTAL_BUDGET, WITH_BUILDS, Environment
from slowest_tests import slowest

#: Seconds that a run of pytest has, after its budget is over, to end by itself: as long as one test may take.
END_SECONDS = 180
#: Seconds between SIGTERM and SIGKILL.
TERM_SECONDS = 10.0
LOOK_SECONDS = 0.2
SLOWEST = 15


@dataclass(frozen=True)
class Result:
    """How an environment ended.

    :param code: exit code, negative: a signal; None: it was not started.
    :param seconds: time that it took. :param cpu: seconds of CPU of it and of what it waited for.
    """

    environment: Environment
    code: int | None
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def in_time(self) -> bool:
        return self.seconds <= self.environment.budget

    @property
    def word(self) -> str:
        if self.code is None:
            return "not run"
        if not self.in_time:
            return "over its budget"
        return "failed" if self.code else "ok"


class Run:
    """An environment that runs, in a process group of its own.

    :param command: without the name of the environment. :param directory: of the files with output.
    """

    def __init__(self, environment: Environment, command: Sequence[str], directory: Path) -> None:
        self.environment = environment
        self.output = directory / f"{environment.name}.txt"
        self._started = time.monotonic()
        # What was printed is there, also when it has to be killed.
        variables = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if environment.tests:
            options = f"--session-timeout={environment.budget} --durations={SLOWEST} --durations-min=1"
            variables["PYTEST_ADDOPTS"] = f"{variables.get('PYTEST_ADDOPTS', '')} {options}".strip()
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, environment.name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=True,
            )

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def must_end(self) -> bool:
        """Has it had its time, and that in which it could have ended by itself?"""
        return self.seconds > self.environment.budget + (END_SECONDS if self.environment.tests else 0)

    def result(self) -> Result | None:
        """How it ended; None: it runs. Does not block."""
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if not pid:
            return None
        self._process.returncode = os.waitstatus_to_exitcode(status)
        cpu = usage.ru_utime + usage.ru_stime
        return Result(self.environment, self._process.returncode, self.seconds, cpu)

    def end(self) -> Result:
        """Ends it and what it started. Blocks until then, at most some seconds."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + TERM_SECONDS
        while (result := self.result()) is None:
            if time.monotonic() > deadline:
                self._signal(signal.SIGKILL)
            time.sleep(LOOK_SECONDS)
        # What outlived the first process of the group.
        self._signal(signal.SIGKILL)
        return result

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class Runner:
    """Runs rows of environments beside each other.

    :param start: starts one. :param report: called with each that has ended. :param seconds: for everything together.
    """

    def __init__(
        self,
        rows: Iterable[Sequence[Environment]],
        start: Callable[[Environment], Run],
        report: Callable[[Run, Result], None],
        seconds: float,
    ) -> None:
        self._rows = [list(row) for row in rows]
        self._start = start
        self._report = report
        self._deadline = time.monotonic() + seconds
        self._running: dict[int, Run] = {}
        self.results: list[Result] = []

    def run(self) -> list[Result]:
        """Blocks until all have ended. Also when it is interrupted, nothing is left running."""
        try:
            while any(self._rows) or self._running:
                late = time.monotonic() > self._deadline
                for number, row in enumerate(self._rows):
                    if late:
                        self.results += [Result(environment, None) for environment in row]
                        row.clear()
                    elif row and number not in self._running:
                        self._running[number] = self._start(row.pop(0))
                for number, run in list(self._running.items()):
                    result = run.end() if late or run.must_end else run.result()
                    if result is not None:
                        del self._running[number]
                        self.results.append(result)
                        self._report(run, result)
                time.sleep(LOOK_SECONDS)
        finally:
            for run in self._running.values():
                self._report(run, run.end())
        return self.results


def clock(seconds: float) -> str:
    """``1:05`` for 65 seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def table(results: Iterable[Result], seconds: float) -> str:
    """A line for each environment and one for all. :param seconds: time from the first to the last."""
    results = list(results)
    lines = [f"{'environment':22}{'time':>7}{'CPU':>7}{'budget':>8}  result"]
    for result in results:
        times = f"{clock(result.seconds):>7}{clock(result.cpu):>7}{clock(result.environment.budget):>8}"
        lines.append(f"{result.environment.name:22}{times}  {result.word}")
    cpu = sum(result.cpu for result in results)
    word = "ok" if seconds <= TOTAL_BUDGET else "over its budget"
    lines.append(f"{'all':22}{clock(seconds):>7}{clock(cpu):>7}{clock(TOTAL_BUDGET):>8}  {word}")
    return "\n".join(lines)


def complaints(results: Iterable[Result], seconds: float, junit: Path) -> list[str]:
    """What was over its budget, each with its slowest tests.

    :param seconds: time from the first to the last. :param junit: directory of the JUnit files.
    """
    lines: list[str] = []
    for result in results:
        if not result.in_time:
            budget = clock(result.environment.budget)
            lines.append(
                f"{result.environment.name} took {clock(result.seconds)}: its budget is {budget} (tools/budgets.py)."
            )
            tests = slowest(junit / f"{result.environment.name}.xml", SLOWEST)
            lines += ["Its slowest tests:", *tests] if tests else []
    if seconds > TOTAL_BUDGET:
        lines.append(f"Everything took {clock(seconds)}: the budget is {clock(TOTAL_BUDGET)} (tools/budgets.py).")
        tests = slowest(junit, SLOWEST)
        lines += ["The slowest tests:", *tests] if tests else []
    return lines


def show(run: Run, result: Result) -> None:
    """Print what an environment printed, below a line with its name."""
    took = f"{clock(result.seconds)} of {clock(result.environment.budget)}"
    print(f"\n===== {result.environment.name}: {result.word}, {took}", flush=True)
    print(run.output.read_text(encoding="utf-8", errors="replace"), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Run the default tox environments within their time budgets.")
    parser.add_argument("--cloud", action="store_true", help="the tests on a real OpenStack, too")
    parser.add_argument("--builds", action="store_true", help="the tests with real image builds, too")
    parser.add_argument("--spent", type=float, default=0.0, help="seconds that were spent of the whole budget already")
    options = parser.parse_args(arguments)
    work = Path(".tox")
    output = work / "output"
    output.mkdir(parents=True, exist_ok=True)
    tox = [str(Path(sys.executable).parent / "tox"), "run", "--colored", "no", "-e"]

    def start(environment: Environment) -> Run:
        print(f"{environment.name}: started", flush=True)
        # The tests wait for each other and for servers; what only computes gives way to them.
        polite = [] if environment.tests else ["nice", "-n", "5"]
        return Run(environment, [*polite, *tox], output)

    more = [*([ON_A_CLOUD] if options.cloud else []), *([WITH_BUILDS] if options.builds else [])]
    rows = [[*ROWS[0], *more], *ROWS[1:]]
    # As a terminal's Ctrl-C: nothing is left running. SIGINT too: a shell's background job begins with it ignored, and
    # so would the tests, some of which send it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic() - options.spent
    results = Runner(rows, start, show, TOTAL_BUDGET - options.spent).run()
    seconds = time.monotonic() - began
    print(table(results, seconds))
    wrong = complaints(results, seconds, work / "junit")
    print("\n".join(wrong), end="\n" if wrong else "", flush=True)
    return 1 if wrong or any(result.code != 0 for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
