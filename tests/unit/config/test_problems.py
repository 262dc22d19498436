# SPDX-License-Identifier: Apache-2.0
"""How problems are collected and worded."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from nodepool.config.problems import Problem, Problems, Severity, did_you_mean, key_text, show
from nodepool.exceptions import ConfigError


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (Problem("f", 3, "a.b", "bad"), "f:3: a.b: bad"),
        (Problem("f", None, "a", "bad"), "f: a: bad"),
        (Problem("f", 3, "", "bad"), "f:3: bad"),
        (Problem("f", None, "", "bad"), "f: bad"),
    ],
)
def test_text(problem: Problem, expected: str) -> None:
    assert str(problem) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", 0, "b", "c", 1, 2], "a[0].b.c[1][2]"),
        ([True, None], "True.None"),
        (["a", "", "b\nc"], "a.''.'b\\nc'"),
    ],
)
def test_key_text(path: list[Any], expected: str) -> None:
    """One line, whatever the keys are."""
    assert key_text(path) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "nothing (null)"),
        ({}, "a mapping"),
        ([], "a list"),
        (True, "true"),
        (False, "false"),
        (1.5, "1.5"),
        ("a\nb", "'a\\nb'"),
        ("x" * 50, "'" + "x" * 39 + "..."),
    ],
)
def test_show(value: object, expected: str) -> None:
    assert show(value) == expected


@pytest.mark.parametrize("key", ["password", "api-token", "client-secret", "api-key", "env-vars"])
def test_show_no_secret(key: str) -> None:
    assert show("4711", ["a", key]) == "something else"


def test_did_you_mean() -> None:
    assert did_you_mean("lables", ["labels", "providers"]) == ", did you mean 'labels'?"
    assert did_you_mean("xyz", ["labels"]) == ""
    assert did_you_mean(7, ["labels"]) == ""
    assert did_you_mean("x", []) == ""


class TestProblems:
    @pytest.fixture
    def problems(self) -> Problems:
        problems = Problems()
        problems.add("f", 9, ["c"], "third")
        problems.add("f", 2, ["b"], "unknown", Severity.UNKNOWN_KEY)
        problems.add("f", None, ["a"], "odd", Severity.WARNING)
        problems.add("f", 9, ["c"], "third")
        problems.add("e", 5, [], "other file")
        return problems

    def test_order(self, problems: Problems) -> None:
        """By file and line, each once, although an alias may lead twice to one place."""
        assert [str(problem) for problem in problems.all()] == [
            "e:5: other file",
            "f: a: odd",
            "f:2: b: unknown",
            "f:9: c: third",
        ]

    @pytest.mark.parametrize(("strict", "errors"), [(False, [5, 9]), (True, [5, 2, 9])])
    def test_strict(self, problems: Problems, strict: bool, errors: list[int]) -> None:
        assert [problem.line for problem in problems.errors(strict=strict)] == errors
        rest = problems.warnings(strict=strict)
        assert len(rest) + len(errors) == len(problems.all())

    def test_finish(self, problems: Problems, caplog: pytest.LogCaptureFixture) -> None:
        with pytest.raises(ConfigError) as caught:
            problems.finish(logging.getLogger("test"), strict=False)
        assert str(caught.value) == "e:5: other file\nf:9: c: third"
        assert [record.getMessage() for record in caplog.records] == ["f: a: odd", "f:2: b: unknown"]

    def test_nothing_found(self) -> None:
        Problems().finish(logging.getLogger("test"), strict=True)
