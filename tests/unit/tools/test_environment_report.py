# SPDX-License-Identifier: Apache-2.0
"""What CI prints of its environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from budgets import TOTAL_BUDGET, Environment
from environment_report import OUTPUT_LINES, complaints, ending, section, table
from environment_runs import Result, Run
from failed_tests import FailedTest
from tests.support.junit_suite import case, write_suite

LINT = Environment("lint", 60)
PY3 = Environment("py3", 600, tests=True)
DOCS = Environment("docs", 60)


def test_table() -> None:
    results = [Result(LINT, 0, 5.9, 4.0), Result(PY3, 1, 301, 475), Result(DOCS, None)]
    assert table(results, 3723, TOTAL_BUDGET).splitlines() == [
        "environment              time    CPU  budget  result",
        "lint                     0:05   0:04    1:00  ok",
        "py3                      5:01   7:55   10:00  failed",
        "docs                     0:00   0:00    1:00  not run",
        "all                     62:03   7:59   45:00  over its budget",
    ]


def test_what_is_over_its_budget_is_named_with_its_slowest_tests(tmp_path: Path) -> None:
    write_suite(tmp_path / "py3.xml", case("tests.a", "test_b", seconds=612))
    assert complaints([Result(PY3, 1, 615), Result(LINT, 0, 61), Result(DOCS, 1, 60)], 700, tmp_path, TOTAL_BUDGET) == [
        "py3 took 10:15: its budget is 10:00 (tools/budgets.py).",
        "Its slowest tests:",
        "  612.0 s  tests.a::test_b",
        "lint took 1:01: its budget is 1:00 (tools/budgets.py).",
    ]


def test_the_whole_over_its_budget(tmp_path: Path) -> None:
    write_suite(tmp_path / "py3.xml", case("tests.a", "test_b", seconds=612))
    assert complaints([Result(LINT, 0, 1)], TOTAL_BUDGET + 1, tmp_path, TOTAL_BUDGET) == [
        "Everything took 45:01: the budget is 45:00 (tools/budgets.py).",
        "The slowest tests:",
        "  612.0 s  tests.a::test_b",
    ]


@pytest.fixture
def junit(tmp_path: Path) -> Path:
    """The directory of JUnit files; py3 has one test that failed."""
    bad = case("tests.test_a", "test_bad", failure="assert 0")
    write_suite(tmp_path / "junit/py3.xml", case("tests.test_a", "test_b", seconds=4), bad)
    return tmp_path / "junit"


def shown(result: Result, output: str, junit: Path) -> list[str]:
    """The section of an environment that printed ``output``."""
    top = junit.parent
    run = Run(result.environment, ["true"], top)
    run.end()
    run.output.write_text(output)
    return section(run, result, junit, top)


def test_of_a_good_one_only_the_counts_and_the_slowest(junit: Path) -> None:
    write_suite(junit / "py3.xml", case("tests.a", "test_b", seconds=4), case("tests.a", "test_c", skipped=True))
    assert shown(Result(LINT, 0), "All checks passed!\n", junit) == ["", "===== lint: ok, 0:00 of 1:00"]
    assert shown(Result(PY3, 0), "much\n", junit) == [
        "",
        "===== py3: ok, 0:00 of 10:00",
        "1 passed, 0 failed, 1 skipped. The slowest tests:",
        "    4.0 s  tests.a::test_b",
        "    0.0 s  tests.a::test_c",
    ]


def test_of_a_bad_one_its_failures_and_the_end_of_its_output(junit: Path) -> None:
    lines = shown(Result(PY3, 1), "".join(f"line {number}\n" for number in range(100)), junit)
    assert lines[1:5] == [
        "===== py3: failed, 0:00 of 10:00",
        "--- py3: tests.test_a::test_bad",
        "assert 0",
        "... 85 lines before",
    ]
    assert lines[-2:] == ["line 99", f"The whole output is in {junit.parent / 'py3.txt'}."]


def test_without_the_noise(junit: Path) -> None:
    noise = [
        "lint: freeze> python -m pip freeze --all",
        "lint: pip==26.3,ruff==0.17.6",
        "lint: install_deps> python -I -m pip install 'ruff>=0.9'",
        "WARNING: Location 'file:///simple/kazoo/' is ignored: it is neither a file nor a directory.",
        "  congratulations :) (0.51 seconds)",
    ]
    wrong = [
        "lint: commands[0]> ruff check .",
        "a.py:1:1: F401",
        *(f"line {number}" for number in range(OUTPUT_LINES - 2)),
    ]
    lines = shown(Result(LINT, 1), "\n".join([*noise, *wrong]), junit)
    assert lines[2:-1] == wrong


def test_the_end_says_what_went_wrong_and_what_is_unstable(tmp_path: Path, junit: Path) -> None:
    (tmp_path / "lint.txt").write_text("a.py:1:1: F401\n")
    write_suite(junit / "py3-again.xml", case("tests.test_a", "test_bad_again", failure="assert 1"))
    unstable = FailedTest("interop", "tests.test_a::test_odd", None, "assert odd")
    results = [Result(PY3, 1), Result(LINT, 1), Result(DOCS, 0), Result(Environment("types", 60), None)]
    assert ending(results, [unstable], junit, tmp_path, tmp_path) == [
        "",
        "===== Unstable tests: they failed, and passed in a second run",
        "--- interop: tests.test_a::test_odd",
        "assert odd",
        "",
        "===== What went wrong in py3: failed",
        "--- py3: tests.test_a::test_bad",
        "assert 0",
        "--- py3-again: tests.test_a::test_bad_again",
        "assert 1",
        "",
        "===== What went wrong in lint: failed",
        "a.py:1:1: F401",
        f"The whole output is in {tmp_path / 'lint.txt'}.",
        "",
        "===== What went wrong in types: not run",
    ]


def test_the_end_of_a_good_run_says_nothing(tmp_path: Path) -> None:
    assert ending([Result(LINT, 0), Result(PY3, 0)], [], tmp_path, tmp_path, tmp_path) == []
