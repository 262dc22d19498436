# SPDX-License-Identifier: Apache-2.0
"""What CI prints: a section for each environment when it has ended, and what went wrong once more at the end.

Whoever shows the output may keep a part of it only: what went well is a few lines, and the end says all that matters.
The whole output of each environment is in a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from count_tests import count
from environment_runs import SLOWEST, Result, Run
from failed_tests import FailedTest, described, failed_tests, tail
from second_runs import SUFFIX
from slowest_tests import slowest

#: Lines of output of an environment that failed: in its section, at the end, and beside what its failed tests say.
OUTPUT_LINES = 200
END_LINES = 40
TEST_OUTPUT_LINES = 15
#: Slowest tests of an environment that is ok.
SLOWEST_OF_OK = 5
#: What tox and pip print at length, and nobody reads.
NOISE = re.compile(
    r"^([a-z0-9-]+: (freeze|install_deps|install_package|install_package_deps)> .*"
    r"|[a-z0-9-]+: [A-Za-z0-9._-]+(==| @ ).*"
    r"|WARNING: Location .* is ignored: it is neither a file nor a directory\."
    r"|  congratulations :\).*)$"
)


def clock(seconds: float) -> str:
    """``1:05`` for 65 seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def table(results: Iterable[Result], seconds: float, budget: float) -> str:
    """A line for each environment and one for all.

    :param seconds: time from the first to the last. :param budget: seconds for everything together.
    """
    results = list(results)
    lines = [f"{'environment':22}{'time':>7}{'CPU':>7}{'budget':>8}  result"]
    for result in results:
        times = f"{clock(result.seconds):>7}{clock(result.cpu):>7}{clock(result.environment.budget):>8}"
        lines.append(f"{result.environment.name:22}{times}  {result.word}")
    cpu = sum(result.cpu for result in results)
    word = "ok" if seconds <= budget else "over its budget"
    lines.append(f"{'all':22}{clock(seconds):>7}{clock(cpu):>7}{clock(budget):>8}  {word}")
    return "\n".join(lines)


def complaints(results: Iterable[Result], seconds: float, junit: Path, budget: float) -> list[str]:
    """What was over its budget, each with its slowest tests.

    :param seconds: time from the first to the last. :param junit: directory of the JUnit files.
    :param budget: seconds for everything together.
    """
    lines: list[str] = []
    for result in results:
        if not result.in_time:
            took, allowed = clock(result.seconds), clock(result.environment.budget)
            lines.append(f"{result.environment.name} took {took}: its budget is {allowed} (tools/budgets.py).")
            tests = slowest(junit / f"{result.environment.name}.xml", SLOWEST)
            lines += ["Its slowest tests:", *tests] if tests else []
    if seconds > budget:
        lines.append(f"Everything took {clock(seconds)}: the budget is {clock(budget)} (tools/budgets.py).")
        tests = slowest(junit, SLOWEST)
        lines += ["The slowest tests:", *tests] if tests else []
    return lines


def section(run: Run, result: Result, junit: Path, top: Path) -> list[str]:
    """What is shown of an environment that has ended.

    :param junit: directory of the JUnit files. :param top: the directory that pytest ran in.
    """
    environment = result.environment
    took = f"{clock(result.seconds)} of {clock(environment.budget)}"
    lines = ["", f"===== {environment.name}: {result.word}, {took}"]
    if result.ok:
        files = [file for file in _files(result, junit) if file.exists()]
        if files:
            passed, failed, skipped = (sum(numbers) for numbers in zip(*map(count, files), strict=True))
            lines.append(f"{passed} passed, {failed} failed, {skipped} skipped. The slowest tests:")
            lines += slowest(files[0], SLOWEST_OF_OK)
        return lines
    found = _failures(result, junit, top)
    return [*lines, *described(found), *_output(run.output, TEST_OUTPUT_LINES if found else OUTPUT_LINES)]


def ending(
    results: Iterable[Result], unstable: Sequence[FailedTest], junit: Path, outputs: Path, top: Path
) -> list[str]:
    """What went wrong, for the very end of the output.

    :param unstable: tests that failed and then passed. :param outputs: directory of the files with output.
    """
    lines = (
        ["", "===== Unstable tests: they failed, and passed in a second run", *described(unstable)] if unstable else []
    )
    for result in results:
        if not result.ok:
            name = result.environment.name
            lines += ["", f"===== What went wrong in {name}: {result.word}"]
            found = _failures(result, junit, top)
            lines += described(found) if found else _output(outputs / f"{name}.txt", END_LINES)
    return lines


def _failures(result: Result, junit: Path, top: Path) -> list[FailedTest]:
    """The tests of an environment that failed, and were not run once more, or failed again."""
    return [test for file in _files(result, junit) for test in failed_tests(file, top)]


def _files(result: Result, junit: Path) -> list[Path]:
    """The JUnit files of its first and its second run, which need not exist."""
    return [junit / f"{result.environment.name}{suffix}.xml" for suffix in ("", SUFFIX)]


def _output(path: Path, count: int) -> list[str]:
    """The end of an output without its noise, and where the whole is."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    kept = "\n".join(line for line in text.splitlines() if not NOISE.match(line))
    return [*tail(kept, count), f"The whole output is in {path}."]
