# SPDX-License-Identifier: Apache-2.0
"""How problems are collected and worded."""

from __future__ import annotations

from typing import Any

import pytest

from nodepool.config.problems import Problem, key_text, show


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
