# SPDX-License-Identifier: Apache-2.0
"""A few tests that failed are run once more, after their environment has ended (ADR 19)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

from budgets import Environment
from environment_runs import Result, Run
from failed_tests import FailedTest, cases, failed_tests, has_failed, name_of

#: Tests that may fail and then pass in a whole run. When more have failed, none of them is run once more.
MOST_UNSTABLE = 5
#: Seconds that an environment has for its second run, above its budget.
SECOND_RUN_SECONDS = 5 * 60
SUFFIX = "-again"
#: Exit code of pytest, which tox passes on: all tests were run, and some failed.
TESTS_FAILED = 1


class SecondRuns:
    """Decides which environments run their failed tests once more, and what the result is then.

    :param start: starts an environment with arguments for pytest, and a suffix for its file with output.
    :param junit: directory of the JUnit files. :param unstable: directory for those of first runs that failed.
    :param top: the directory that pytest runs in.
    """

    def __init__(
        self, start: Callable[[Environment, Sequence[str], str], Run], junit: Path, unstable: Path, top: Path
    ) -> None:
        self._start = start
        self._junit = junit
        self._unstable = unstable
        self._top = top
        self._first: dict[str, tuple[Result, list[FailedTest]]] = {}
        #: Tests that failed and then passed, with their failure.
        self.unstable: list[FailedTest] = []

    def after(self, run: Run, result: Result) -> Run | Result:
        """The second run of an environment that has ended, or the result that stands."""
        name = result.environment.name
        if name in self._first:
            return self._both(result, *self._first.pop(name))
        failed = failed_tests(self._junit / f"{name}.xml", self._top)
        nodes = [test.node for test in failed if test.node is not None]
        # Of other environments whose second run has not ended yet.
        running = sum(len(tests) for _, tests in self._first.values())
        few = 0 < len(failed) <= MOST_UNSTABLE - len(self.unstable) - running
        if not (result.environment.tests and result.in_time and result.code == TESTS_FAILED and few):
            return result
        if len(nodes) < len(failed):
            return result
        self._first[name] = result, failed
        environment = dataclasses.replace(result.environment, budget=SECOND_RUN_SECONDS)
        again = self._again(name)
        again.unlink(missing_ok=True)
        return self._start(environment, [f"--junit-xml={again.absolute()}", *nodes], SUFFIX)

    def _again(self, name: str) -> Path:
        return self._junit / f"{name}{SUFFIX}.xml"

    def _both(self, second: Result, first: Result, failed: list[FailedTest]) -> Result:
        """The result of two runs: all is well if the second was, and each test that had failed passed in it."""
        name = first.environment.name
        passed = {name_of(case) for case in cases(self._again(name)) if is_passed(case)}
        unstable = [test for test in failed if test.name in passed]
        self.unstable += unstable
        good = second.ok and len(unstable) == len(failed)
        self._count_once(name)
        return Result(
            dataclasses.replace(first.environment, budget=first.environment.budget + SECOND_RUN_SECONDS),
            0 if good else second.code or TESTS_FAILED,
            first.seconds + second.seconds,
            first.cpu + second.cpu,
            len(unstable),
        )

    def _count_once(self, name: str) -> None:
        """Take the tests that were run once more out of the first JUnit file, of which a copy is kept elsewhere."""
        ran = {name_of(case) for case in cases(self._again(name))}
        first = self._junit / f"{name}.xml"
        self._unstable.mkdir(parents=True, exist_ok=True)
        (self._unstable / first.name).write_bytes(first.read_bytes())
        tree = ElementTree.parse(first)
        for suite in tree.getroot().iter("testsuite"):
            for case in [case for case in suite.findall("testcase") if has_failed(case) and name_of(case) in ran]:
                suite.remove(case)
            left = suite.findall("testcase")
            for key, kind in (("failures", "failure"), ("errors", "error")):
                suite.set(key, str(sum(case.find(kind) is not None for case in left)))
            suite.set("tests", str(len(left)))
        tree.write(first, encoding="utf-8", xml_declaration=True)


def is_passed(case: ElementTree.Element) -> bool:
    """Did it run, and not fail?"""
    return not has_failed(case) and case.find("skipped") is None
