# SPDX-License-Identifier: Apache-2.0
"""Plain words, line and column for what is no YAML."""

from __future__ import annotations

import pytest

from nodepool.config.marks import SourceText, explain, parse
from nodepool.config.problems import Problems
from nodepool.exceptions import ConfigError


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a:\n\t- b\n", "2:1", "a tab character is used for indentation; YAML takes only spaces there"),
        ("a:\n  - x: 1\n    y: 2\n  \tz: 3\n", "4:3", "a tab character"),
        (
            "a:\n  - x: 1\n    y: 2\n   z: 3\n",
            "4:4",
            "3 spaces before this line, 4 spaces before the one above, 2 spaces before what begins in line 2",
        ),
        ("a:\n - b: 1\n  c: 2\n", "3:3", "1 space before the one above"),
        ("a:\n  - name: a\n  name: b\n", "3:3", "the list that begins in line 2 goes on with something else than '- '"),
        ("a: 1\n  b: 2\n", "2:4", "this line is further in than the one above, which has a value already"),
        ("a: b: c\n", "1:5", "a value with ': ' in it must be in quotes"),
        ("a\nb: 1\n", "2:2", "line 1 has no ':' after its key"),
        ("a: 1\nb\nc: 2\n", "3:1", "a key without a ':' after it"),
        ("a: 'x\nb: 1\n", "3:1", "a quote or a bracket that is opened in line 1 is not closed"),
        ("a: [1, 2\nb: 3\n", "2:2", "a ',' between two entries is missing, or a bracket is not closed"),
        ("a: @x\n", "1:4", "a text that begins with '@' must be in quotes"),
        ("k: 'it's'\n", "1:8", "a quote inside such a text must be doubled"),
    ],
)
def test_hints(text: str, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(SourceText("f.yaml", text), Problems())
    assert str(caught.value).startswith(f"f.yaml:{place}: not YAML: ")
    assert words in str(caught.value)


def test_unset_variable_is_the_likelier_cause() -> None:
    with pytest.raises(ConfigError, match="NODEPOOL_X is not set") as caught:
        parse(SourceText("f.yaml", "a: %(NODEPOOL_X)\n"), Problems())
    assert "must be in quotes" not in str(caught.value)


@pytest.mark.parametrize(
    "problem", ["found something new", "did not find expected key", "found unexpected end of stream"]
)
def test_places_outside_of_the_file(problem: str) -> None:
    """Whatever a parser says: a hint, or none."""
    assert isinstance(explain(problem, [], 5, 7, None), str)
    assert isinstance(explain(problem, ["a: 1"], 0, 99, (0, 0)), str)
