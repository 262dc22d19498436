# SPDX-License-Identifier: Apache-2.0
"""Tox environments as processes: how one is started, how it ends, and rows of them beside each other."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from budgets import Environment

#: Seconds that a run of pytest has, after its budget is over, to end by itself: as long as one test may take.
END_SECONDS = 180
#: Seconds between SIGTERM and SIGKILL. What an environment started, e.g. a whole cloud, it stops meanwhile.
TERM_SECONDS = 60.0
LOOK_SECONDS = 0.2
SLOWEST = 15


@dataclass(frozen=True)
class Result:
    """How an environment ended.

    :param code: exit code, negative: a signal; None: it was not started.
    :param seconds: time that it took. :param cpu: seconds of CPU of it and of what it waited for.
    :param unstable: tests that failed and then passed.
    """

    environment: Environment
    code: int | None
    seconds: float = 0.0
    cpu: float = 0.0
    unstable: int = 0

    @property
    def in_time(self) -> bool:
        return self.seconds <= self.environment.budget

    @property
    def ok(self) -> bool:
        return self.code == 0 and self.in_time

    @property
    def word(self) -> str:
        if self.code is None:
            return "not run"
        if not self.in_time:
            return "over its budget"
        if self.code:
            return "failed"
        return f"ok, {self.unstable} unstable" if self.unstable else "ok"


class Run:
    """An environment that runs, in a process group of its own.

    :param command: without the name of the environment. :param directory: of the files with output.
    :param arguments: after the name. :param suffix: of the name of the file with output.
    """

    def __init__(
        self,
        environment: Environment,
        command: Sequence[str],
        directory: Path,
        arguments: Sequence[str] = (),
        suffix: str = "",
    ) -> None:
        self.environment = environment
        self.output = directory / f"{environment.name}{suffix}.txt"
        self._started = time.monotonic()
        # What was printed is there, also when it has to be killed.
        variables = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if environment.tests:
            options = f"--session-timeout={environment.budget} --durations={SLOWEST} --durations-min=1"
            # What failed tests printed and logged is in the JUnit files, too: it is shown with them.
            options += " -o junit_logging=all -o junit_log_passing_tests=false"
            variables["PYTEST_ADDOPTS"] = f"{variables.get('PYTEST_ADDOPTS', '')} {options}".strip()
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, environment.name, *arguments],
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
        """Ends it and what it started. Blocks until then, at most some seconds longer than `TERM_SECONDS`."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + TERM_SECONDS
        result = self.result()
        # tox ends at once, and what it started may be about to clean up.
        while result is None or self._group_lives():
            if time.monotonic() > deadline:
                self._signal(signal.SIGKILL)
            time.sleep(LOOK_SECONDS)
            result = result or self.result()
        return result

    def _group_lives(self) -> bool:
        """Is there a process of the group that has not ended?"""
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, group = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:3]
                if group == str(self._process.pid) and state not in "ZX":
                    return True
        return False

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class Runner:
    """Runs rows of environments beside each other.

    :param start: starts one. :param report: called with each that has ended. :param seconds: for everything together.
    :param after: called with each that has ended by itself, before ``report``: a run that it returns comes next in the
        row, in place of the one that has ended; a result stands.
    """

    def __init__(
        self,
        rows: Iterable[Sequence[Environment]],
        start: Callable[[Environment], Run],
        report: Callable[[Run, Result], None],
        seconds: float,
        after: Callable[[Run, Result], Run | Result] = lambda _run, result: result,
    ) -> None:
        self._rows = [list(row) for row in rows]
        self._start = start
        self._report = report
        self._after = after
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
                    self._look(number, run, late)
                time.sleep(LOOK_SECONDS)
        finally:
            for run in self._running.values():
                self._report(run, run.end())
        return self.results

    def _look(self, number: int, run: Run, late: bool) -> None:
        """Take note of a run if it has ended, and end it if its time is over."""
        must_end = late or run.must_end
        ended = run.end() if must_end else run.result()
        if ended is None:
            return
        del self._running[number]
        next_one = ended if must_end else self._after(run, ended)
        if isinstance(next_one, Run):
            self._running[number] = next_one
            return
        self.results.append(next_one)
        self._report(run, next_one)
