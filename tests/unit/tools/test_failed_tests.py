# SPDX-License-Identifier: Apache-2.0
"""The failed tests of a run, from its JUnit file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from failed_tests import COLUMNS, LINES, SHOWN, FailedTest, described, failed_tests, tail
from tests.support.junit_suite import case, write_suite


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A directory with tests."""
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "tests/unit/test_a.py").touch()
    return tmp_path


def test_only_those_that_failed_with_their_node_ids(top: Path) -> None:
    file = write_suite(
        top / "py3.xml",
        case("tests.unit.test_a", "test_good"),
        case("tests.unit.test_a", "test_bad[a.b/c]", failure="assert 0"),
        case("tests.unit.test_a.TestMany", "test_bad", error="fixture broke"),
    )
    assert failed_tests(file, top) == [
        FailedTest("py3", "tests.unit.test_a::test_bad[a.b/c]", "tests/unit/test_a.py::test_bad[a.b/c]", "assert 0"),
        FailedTest(
            "py3", "tests.unit.test_a.TestMany::test_bad", "tests/unit/test_a.py::TestMany::test_bad", "fixture broke"
        ),
    ]


def test_a_test_whose_fixture_fails_after_it_is_one_test(top: Path) -> None:
    file = write_suite(
        top / "py3.xml",
        case("tests.unit.test_a", "test_bad", failure="first", out="printed"),
        case("tests.unit.test_a", "test_bad", error="second"),
    )
    [test] = failed_tests(file, top)
    assert (test.text, test.captured) == ("first\nsecond", ("printed",))


def test_what_was_not_captured_is_not_there(top: Path) -> None:
    """JUnit files have the lines above it all the same."""
    nothing = "---- Captured Log ----\n\n---- Captured Out ----\n\n"
    file = write_suite(
        top / "py3.xml",
        case("tests.unit.test_a", "test_bad", failure="bad", out=nothing),
        case("tests.unit.test_a", "test_worse", failure="bad", out=f"---- Captured Log ----\nWARNING x\n{nothing}"),
    )
    assert [test.captured for test in failed_tests(file, top)] == [(), ("---- Captured Log ----\nWARNING x",)]


def test_what_is_in_none_of_the_files_has_no_node_id(top: Path) -> None:
    """A file that cannot be imported, e.g."""
    file = write_suite(top / "py3.xml", case("", "tests.unit.test_a", error="SyntaxError"))
    [test] = failed_tests(file, top)
    assert (test.name, test.node, test.text) == ("tests.unit.test_a", None, "SyntaxError")


@pytest.mark.parametrize("content", [None, "", "<testsuites><testsuite>"])
def test_no_file_or_no_whole_one(top: Path, content: str | None) -> None:
    """The run was killed."""
    if content is not None:
        (top / "py3.xml").write_text(content)
    assert failed_tests(top / "py3.xml", top) == []


def test_files_of_pytest_itself(tmp_path: Path) -> None:
    """The node ids are those that pytest takes; what was printed and logged is there."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(
        dedent("""
            import logging
            import pytest

            @pytest.fixture
            def broken():
                yield
                assert not "the fixture"

            class TestClass:
                @pytest.mark.parametrize("value", ["x y", "a.b/c[d]"])
                def test_bad(self, value):
                    print("it was", value)
                    assert value == 1

            def test_teardown(broken):
                logging.warning("logged")

            def test_good():
                print("nobody reads this")
        """)
    )

    def run(*arguments: str) -> int:
        options = ["-o", "junit_logging=all", "-o", "junit_log_passing_tests=false", "--junit-xml=py3.xml"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *arguments]
        # Nothing of the run that this test is part of.
        variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        result = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, timeout=120, env=variables)
        return result.returncode

    assert run("tests") == 1
    tests = {test.node: test for test in failed_tests(tmp_path / "py3.xml", tmp_path)}
    assert set(tests) == {
        "tests/test_a.py::TestClass::test_bad[x y]",
        "tests/test_a.py::TestClass::test_bad[a.b/c[d]]",
        "tests/test_a.py::test_teardown",
    }
    lines = described(list(tests.values()))
    assert "    it was x y" in lines
    assert any("logged" in line for line in lines)
    assert not any("nobody reads this" in line for line in lines)
    assert run(*[node for node in tests if node]) == 1
    assert {test.node for test in failed_tests(tmp_path / "py3.xml", tmp_path)} == set(tests)


def test_tail() -> None:
    assert tail("a\nb\n", 2) == ["a", "b"]
    assert tail("a\nb\nc\n", 2) == ["... 1 lines before", "b", "c"]
    assert tail("x" * (COLUMNS + 1), 2) == ["x" * COLUMNS + " ..."]


def test_described_by_the_end_of_the_failure() -> None:
    text = "\n".join(f"line {number}" for number in range(LINES + 2))
    test = FailedTest("py3", "tests.test_a::test_b", "tests/test_a.py::test_b", text, ("one\ntwo",))
    lines = described([test])
    assert lines[:3] == ["--- py3: tests/test_a.py::test_b", "... 2 lines before", "line 2"]
    assert lines[-3:] == ["captured:", "    one", "    two"]


def test_of_very_many_the_last_ones_are_only_named() -> None:
    tests = [FailedTest("py3", f"tests.test_a::test_{number}", None, "bad") for number in range(SHOWN + 2)]
    lines = described(tests)
    assert lines.count("bad") == SHOWN
    assert lines[-3:] == [
        "--- 2 more:",
        f"py3: tests.test_a::test_{SHOWN}",
        f"py3: tests.test_a::test_{SHOWN + 1}",
    ]
