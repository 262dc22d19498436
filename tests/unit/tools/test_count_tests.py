# SPDX-License-Identifier: Apache-2.0
"""The closing line of a test run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import count_tests

SUITE = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "argv", ["count_tests", str(tmp_path)])
    return tmp_path


def test_adds_up_all_files(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several environments of tox give one line."""
    (directory / "py3.xml").write_text(SUITE.format(10, 0, 0, 1))
    (directory / "interop.xml").write_text(SUITE.format(3, 0, 0, 0))
    assert count_tests.main() == 0
    assert capsys.readouterr().out == "12 passed, 0 failed, 1 skipped\n"


def test_one_file(directory: Path) -> None:
    (directory / "py3.xml").write_text(SUITE.format(10, 0, 0, 1))
    (directory / "interop.xml").write_text(SUITE.format(3, 0, 0, 0))
    assert count_tests.count(directory / "py3.xml") == (9, 0, 1)


def test_error_is_a_failure(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fixture that broke is an error in JUnit's words."""
    (directory / "py3.xml").write_text(SUITE.format(5, 1, 1, 0))
    assert count_tests.main() == 1
    assert capsys.readouterr().out == "3 passed, 2 failed, 0 skipped\n"


def test_no_test_is_not_green(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that tested nothing must not look like one that passed."""
    assert count_tests.main() == 2
    assert capsys.readouterr().out == "0 passed, 0 failed, 0 skipped\n"
