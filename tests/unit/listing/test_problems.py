# SPDX-License-Identifier: Apache-2.0
"""How problems of a configuration are shown."""

from __future__ import annotations

import json

import pytest

from nodepool.config.problems import Problem, Severity
from nodepool.listing.problems import as_frame, as_github, as_json, as_text

ERROR = Problem("n.yaml", 3, "labels[0].min-redy", "unknown key", Severity.UNKNOWN_KEY, column=5)
WARNING = Problem("n.yaml", None, "", "odd: 100%, really", Severity.WARNING)


def frame(problem: Problem, line: str | None, *, colour: bool = False) -> list[str]:
    return as_frame(problem, lambda path, number: line, colour=colour).splitlines()


def test_text() -> None:
    assert as_text(ERROR) == "n.yaml:3:5: labels[0].min-redy: unknown key"
    assert as_text(WARNING) == "n.yaml: warning: odd: 100%, really"


def test_frame() -> None:
    """The line, and a caret for each letter of the key."""
    assert frame(ERROR, "    min-redy: 1") == [
        "n.yaml:3:5: labels[0].min-redy: unknown key",
        "  3 |     min-redy: 1",
        "    |     ^^^^^^^^",
    ]


@pytest.mark.parametrize("line", [None, "", "   "])
def test_line_that_is_not_there(line: str | None) -> None:
    assert frame(ERROR, line) == [as_text(ERROR)]
    assert frame(WARNING, "no line is known") == [as_text(WARNING)]


@pytest.mark.parametrize("line", ["    min-redy: 1 # password", "    token: abc"])
def test_secrets_are_not_shown(line: str) -> None:
    assert frame(ERROR, line) == [as_text(ERROR)]


def test_long_lines_and_control_characters() -> None:
    """A file may come from anybody: nothing of it goes to the terminal but what can be printed."""
    shown = frame(ERROR, "    \x1b]0;x" + "y" * 1000)[1]
    assert "\x1b" not in shown
    assert len(shown) < 200
    far = Problem("n.yaml", 3, "k", "text", column=500)
    assert frame(far, "y" * 1000) == [as_text(far)]


def test_colour() -> None:
    assert "\x1b[31m" in as_frame(ERROR, lambda path, number: "    min-redy: 1", colour=True)
    assert "\x1b[33m" in as_frame(WARNING, lambda path, number: None, colour=True)


def test_json() -> None:
    assert json.loads(as_json([ERROR, WARNING])) == [
        {
            "file": "n.yaml",
            "line": 3,
            "column": 5,
            "key": "labels[0].min-redy",
            "severity": "error",
            "message": "unknown key",
        },
        {
            "file": "n.yaml",
            "line": None,
            "column": None,
            "key": "",
            "severity": "warning",
            "message": "odd: 100%, really",
        },
    ]


def test_github() -> None:
    """Its own characters are written as it wants them."""
    assert as_github(ERROR) == "::error file=n.yaml,line=3,col=5,title=labels[0].min-redy::unknown key"
    odd = Problem("a,b:c.yaml", 1, "", "100%\nx", Severity.ERROR)
    assert as_github(odd) == "::error file=a%2Cb%3Ac.yaml,line=1::100%25%0Ax"
