# SPDX-License-Identifier: Apache-2.0
"""From text to values with line numbers: YAML as PyYAML reads it, and variables (reference/configuration 1)."""

from __future__ import annotations

from typing import Any, Final

import pytest
import yaml

from nodepool.config import marks
from nodepool.config.marks import Document, SourceText, parse, substitute
from nodepool.config.problems import Problems
from nodepool.exceptions import ConfigError
from tests.support.tables import rows


@pytest.fixture(params=["C", "Python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """libyaml need not be there. The private name is patched, because nothing of the product chooses a parser."""
    if request.param == "Python":
        monkeypatch.setattr(marks, "_LOADER", yaml.SafeLoader)


def read(text: str, **variables: str) -> tuple[Document, list[str]]:
    problems = Problems()
    document = parse(substitute("f", text, variables), problems)
    return document, [str(problem) for problem in problems.all()]


@pytest.mark.usefixtures("parser")
@rows(__file__, "test_same_as_pyyaml")
def test_same_as_pyyaml(text: str) -> None:
    """PyYAML's safe loader defines what a file means."""
    text = text.replace("LABELS", ", ".join(f"{{name: l{n}, x: 1}}" for n in range(2000)))
    text = text.replace("ALIASES", "\n".join(f"p{n}: *pool" for n in range(20)))
    document, problems = read(text)
    assert problems == []
    assert document.data == yaml.safe_load(text)


@pytest.mark.usefixtures("parser")
@rows(__file__, "test_lines")
def test_lines(path: list[Any], line: int) -> None:
    """The key's own line, or that of the nearest thing around it."""
    text = "a: 1\nb:\n  - c: 2\n    d: &d\n      - 3\n      - 4\ne: *d\nf: {<<: {g: 5}}"
    assert read(text)[0].line_of(path) == line
    assert read("")[0].line_of(path) is None


@pytest.mark.usefixtures("parser")
@rows(__file__, "test_problems")
def test_problems(text: str, data: Any, told: list[str]) -> None:
    """Each at its place, and reading goes on; the last of two keys counts, as in Nodepool 11."""
    variables = {"NODEPOOL_X": "[1,\n 2]", "NODEPOOL_P": "99", "NODEPOOL_NEST": "%(NODEPOOL_P)", "HOME": "/root"}
    document, problems = read(text.replace("NINES", "9" * 5000), **variables)
    assert document.data == data if data is not None else document.data["c"] == 3
    assert len(problems) == len(told)
    for problem, words in zip(problems, told, strict=True):
        assert words in problem
        assert data is not None or problem.startswith("f:2: b: ")


def bomb(levels: int) -> str:
    """Billion laughs: each level has nine times the level before."""
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    return "\n".join(lines + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)])


TRAPS: Final = {
    "laughs": bomb(9),
    "brackets": "[" * 100_000,
    "steps": "\n".join("  " * n + "a:" for n in range(60)),
    "aliases": "a0: &a0 []\n" + "\n".join(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 99)),
}


@pytest.mark.usefixtures("parser")
@rows(__file__, "test_refused")
def test_refused(text: str, place: str, words: str) -> None:
    """One clear message that says where."""
    message = refusal(TRAPS.get(text, text))
    assert message.startswith(f"f:{place}")
    assert words in message
    assert "must be in quotes" not in message, "an unset variable is the likelier cause"


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(SourceText("f", text), Problems())
    (message,) = str(caught.value).splitlines()
    return message


@rows(__file__, "test_hints")
def test_hints(text: str, place: str, words: str) -> None:
    """In plain words what is usually wrong there. Those of the parser in C are known, which is nearly always there."""
    message = refusal(text)
    assert message.startswith(f"f:{place}not YAML: ")
    assert words in message
