# SPDX-License-Identifier: Apache-2.0
"""Which tests are run a second time, and what is made of it. For tox stands a shell that writes a JUnit file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from budgets import Environment
from count_tests import count
from environment_runs import Result, Run, Runner
from failed_tests import failed_tests
from second_runs import MOST_UNSTABLE, SECOND_RUN_SECONDS, SecondRuns
from tests.support.junit_suite import case, write_suite

PY3 = Environment("py3", 600, tests=True)
INTEROP = Environment("interop", 300, tests=True)
FAILED = Result(PY3, 1, 100.0, 50.0)


class Site:
    """A directory in which environments are run. ``second`` is what the second runs find, and their exit code."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.junit = top / "junit"
        self.second: tuple[int, list[ElementTree.Element]] = (0, [])
        #: Environment, budget and node ids of each second run.
        self.started: list[tuple[str, float, list[str]]] = []
        self.second_runs = SecondRuns(self._start, self.junit, top / "unstable", top)
        (top / "tests").mkdir()
        (top / "tests/test_a.py").touch()

    def first(self, *cases: ElementTree.Element, name: str = "py3") -> None:
        """What the first run of an environment found."""
        write_suite(self.junit / f"{name}.xml", *cases)

    def result(self, result: Result = FAILED) -> Result:
        """What comes of an environment whose first run had a result."""
        run = Run(result.environment, ["true"], self.top)
        run.end()
        after = self.second_runs.after(run, result)
        if isinstance(after, Result):
            return after
        [both] = Runner(
            [[result.environment]], lambda _: after, lambda _run, _result: None, 60, self.second_runs.after
        ).run()
        return both

    def _start(self, environment: Environment, arguments: Sequence[str], suffix: str) -> Run:
        option, *nodes = arguments
        self.started.append((environment.name, environment.budget, nodes))
        code, cases = self.second
        if cases:
            write_suite(Path(option.removeprefix("--junit-xml=")), *cases)
        return Run(environment, ["sh", "-c", f"exit {code}"], self.top, arguments, suffix)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def good(name: str) -> ElementTree.Element:
    return case("tests.test_a", name)


def bad(name: str) -> ElementTree.Element:
    return case("tests.test_a", name, failure=f"{name} is bad")


def test_what_passes_then_is_unstable(site: Site) -> None:
    site.first(good("test_good"), bad("test_odd"))
    site.second = 0, [good("test_odd")]
    result = site.result()
    assert (result.code, result.word, result.unstable) == (0, "ok, 1 unstable", 1)
    assert result.seconds > FAILED.seconds
    assert result.environment.budget == PY3.budget + SECOND_RUN_SECONDS
    assert site.started == [("py3", SECOND_RUN_SECONDS, ["tests/test_a.py::test_odd"])]
    assert [(test.name, test.text) for test in site.second_runs.unstable] == [
        ("tests.test_a::test_odd", "test_odd is bad")
    ]


def test_each_test_counts_once_and_the_first_failure_is_kept(site: Site) -> None:
    site.first(good("test_good"), bad("test_odd"))
    site.second = 0, [good("test_odd")]
    site.result()
    assert count(site.junit) == (2, 0, 0)
    [kept] = failed_tests(site.top / "unstable/py3.xml", site.top)
    assert kept.text == "test_odd is bad"


def test_what_fails_again_has_failed(site: Site) -> None:
    """Also if others passed then."""
    site.first(good("test_good"), bad("test_odd"), bad("test_bad"))
    site.second = 1, [good("test_odd"), bad("test_bad")]
    result = site.result()
    assert (result.code, result.word) == (1, "failed")
    assert [test.name for test in site.second_runs.unstable] == ["tests.test_a::test_odd"]
    assert count(site.junit) == (2, 1, 0)


@pytest.mark.parametrize("second", [[], [good("test_other")], [case("tests.test_a", "test_odd", skipped=True)]])
def test_what_did_not_pass_then_has_failed(site: Site, second: list[ElementTree.Element]) -> None:
    """It was skipped, or not run at all, and nobody complained."""
    site.first(bad("test_odd"))
    site.second = 0, second
    assert site.result().word == "failed"
    assert site.second_runs.unstable == []


def test_a_second_run_that_cannot_be_made_has_failed(site: Site) -> None:
    site.first(bad("test_odd"))
    site.second = 3, []
    assert site.result().code == 3
    assert count(site.junit) == (0, 1, 0)


def test_when_many_fail_none_is_run_once_more(site: Site) -> None:
    site.first(*[bad(f"test_{number}") for number in range(MOST_UNSTABLE + 1)])
    assert site.result() is FAILED
    assert site.started == []


def test_the_bound_is_that_of_the_whole_run(site: Site) -> None:
    names = [f"test_{number}" for number in range(MOST_UNSTABLE)]
    site.first(*[bad(name) for name in names])
    site.second = 0, [good(name) for name in names]
    assert site.result().unstable == MOST_UNSTABLE
    site.first(bad("test_odd"), name="interop")
    assert site.result(Result(INTEROP, 1)).word == "failed"
    assert [name for name, _, _ in site.started] == ["py3"]


@pytest.mark.parametrize(
    "result",
    [
        Result(PY3, 0),
        # Interrupted, an error of pytest, killed.
        Result(PY3, 2),
        Result(PY3, 3),
        Result(PY3, -9),
        Result(PY3, 1, seconds=PY3.budget + 1),
        Result(Environment("py3", 600), 1),
    ],
    ids=str,
)
def test_only_a_run_of_pytest_in_which_tests_failed(site: Site, result: Result) -> None:
    site.first(bad("test_odd"))
    assert site.result(result) is result
    assert site.started == []


def test_what_cannot_be_named_is_not_run_once_more(site: Site) -> None:
    """Else the others would pass, and nobody looked at this one."""
    site.first(bad("test_odd"), case("", "tests.test_a", error="SyntaxError"))
    assert site.result() is FAILED
    assert site.started == []


def test_of_an_earlier_second_run_nothing_counts(site: Site) -> None:
    site.first(bad("test_odd"))
    write_suite(site.junit / "py3-again.xml", good("test_odd"))
    site.second = 0, []
    assert site.result().word == "failed"


def test_those_that_run_count(site: Site) -> None:
    """Rows run beside each other: what other environments run once more just now counts, too."""
    site.first(*(bad(f"test_{number}") for number in range(MOST_UNSTABLE)))
    site.first(bad("test_x"), name="interop")
    run = Run(PY3, ["true"], site.top)
    run.end()
    again = site.second_runs.after(run, FAILED)
    assert isinstance(again, Run)
    again.end()
    failed = Result(INTEROP, 1, 10.0, 5.0)
    assert site.second_runs.after(run, failed) is failed
