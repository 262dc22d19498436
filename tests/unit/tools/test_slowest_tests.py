# SPDX-License-Identifier: Apache-2.0
"""The slowest tests of a run, from its JUnit files."""

from __future__ import annotations

from pathlib import Path

from slowest_tests import slowest

SUITE = "<testsuites><testsuite>{}</testsuite></testsuites>"
CASE = '<testcase classname="{}" name="{}" time="{}"/>'


def test_slowest_first_over_all_files(tmp_path: Path) -> None:
    (tmp_path / "py3.xml").write_text(SUITE.format(CASE.format("a", "one", 1.5) + CASE.format("a", "two", 30.25)))
    (tmp_path / "interop.xml").write_text(SUITE.format(CASE.format("b", "three", 4)))
    assert slowest(tmp_path, 2) == ["   30.2 s  a::two", "    4.0 s  b::three"]


def test_of_one_file(tmp_path: Path) -> None:
    (tmp_path / "py3.xml").write_text(SUITE.format(CASE.format("a", "one", 1.5)))
    assert slowest(tmp_path / "py3.xml", 5) == ["    1.5 s  a::one"]


def test_a_run_that_wrote_no_file(tmp_path: Path) -> None:
    """It was killed, e.g."""
    assert slowest(tmp_path / "py3.xml", 5) == []
