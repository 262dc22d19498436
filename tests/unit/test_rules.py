# SPDX-License-Identifier: Apache-2.0
"""The rule book, doc/source/developers/rules.rst: what is cited is there, and each rule is named by a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
RULES = ROOT / "doc" / "source" / "developers" / "rules.rst"
PLACES = ("nodepool", "simulators", "tests", "tools", "benchmarks", "etc", "doc/source", "releasenotes")
SUFFIXES = {".py", ".rst", ".yaml", ".conf", ".service", ".sh", ""}
#: Where a rule is defined.
DEFINITION: Final = re.compile(r"^   :([A-Z]+-\d+): ", re.MULTILINE)
#: One letter, or two. ``UTF-8`` is none, a code such as ``L-43DA4232`` neither.
LETTERS: Final = "[A-Z]|AW|AZ|CA|CM|FS|GC|IV|KU|MN|MT|OS|OV|TR|WP"
ID: Final = rf"(?<![\w.-])(?:(?P<letters>{LETTERS})-(?P<number>\d{{1,3}}))(?![\w-]|\.\d)"
CITATION: Final = re.compile(ID + r"(?:(?:`)?\s+to\s+(?:#\s+)?(?::rule:`)?(?P=letters)-(?P<last>\d{1,3})(?![\w-]))?")


def citations(text: str) -> frozenset[str]:
    """Ids of the rules that a text names, each of a range (``A-2 to A-6``)."""
    found = set()
    for match in CITATION.finditer(text):
        first = int(match["number"])
        for number in range(first, int(match["last"] or first) + 1):
            found.add(f"{match['letters']}-{number}")
    return frozenset(found)


@cache
def texts() -> dict[Path, str]:
    """Everything that may cite a rule, by its path in the repository. This file's examples are not."""
    found = {}
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*")):
            if (
                path.is_file()
                and path.suffix in SUFFIXES
                and path != Path(__file__)
                and "__pycache__" not in path.parts
            ):
                found[path.relative_to(ROOT)] = path.read_text(encoding="utf-8", errors="replace")
    return found


@cache
def rules() -> frozenset[str]:
    ids = DEFINITION.findall(RULES.read_text(encoding="utf-8"))
    assert len(ids) == len(set(ids)), "a rule is defined twice"
    return frozenset(ids)


def each_test(text: str) -> Iterator[str]:
    """The source of each test of a file, with its comments, and what the docstrings of its classes say."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            yield ast.get_docstring(node) or ""
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield "\n".join(lines[first - 1 : node.end_lineno])


@cache
def named_by_tests() -> frozenset[str]:
    """Rules that a test names; a range or a letter in the head of a file proves nothing."""
    found: set[str] = set()
    for path, text in texts().items():
        if path.parts[0] == "tests" and path.name.startswith("test_") and path.suffix == ".py":
            for test in each_test(text):
                found |= citations(test)
    return frozenset(found)


def test_cited_rules_are_there() -> None:
    cited = {f"{path}: {rule}" for path, text in texts().items() for rule in citations(text) - rules()}
    assert not cited


def test_every_rule_is_named_by_a_test() -> None:
    assert not rules() - named_by_tests()
