# SPDX-License-Identifier: Apache-2.0
"""The rule book in doc/source/reference: what is cited is there, and each rule is named by a test or not built yet."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support import rule_book

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "doc" / "source" / "reference"
PLACES = ("nodepool", "simulators", "tests", "tools", "benchmarks", "etc", "doc/source", "releasenotes")
SUFFIXES = {".py", ".rst", ".yaml", ".conf", ".service", ".sh", ""}


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
    ids = [match[1] for path in REFERENCE.glob("*.rst") for match in rule_book.DEFINITION.finditer(path.read_text())]
    assert len(ids) == len(set(ids)), "a rule is defined twice"
    return frozenset(ids)


@cache
def not_built() -> frozenset[str]:
    return rule_book.citations(rule_book.section((REFERENCE / "not-built.rst").read_text(), "Not built"))


@cache
def built_in_part() -> frozenset[str]:
    text = rule_book.section((REFERENCE / "not-built.rst").read_text(), "Built in part")
    return frozenset(match[1] for match in re.finditer(r"^   \* - ([A-Z]+-\d+)$", text, re.MULTILINE))


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
                found |= rule_book.citations(test)
    return frozenset(found)


def test_cited_rules_are_there() -> None:
    cited = {f"{path}: {rule}" for path, text in texts().items() for rule in rule_book.citations(text) - rules()}
    assert not cited


def test_every_rule_is_named_by_a_test() -> None:
    """What is not built has none: a rule with a test leaves the list."""
    assert not rules() - not_built() - named_by_tests()
    assert not not_built() & named_by_tests()
    assert not_built() <= rules()
    assert built_in_part() <= rules() - not_built()


def test_cited_sections_are_there() -> None:
    headings = {path.stem: rule_book.section_numbers(path.read_text()) for path in REFERENCE.glob("*.rst")}
    headings |= {path.name: frozenset() for path in REFERENCE.iterdir() if path.is_dir()}
    unknown = {
        f"{path}: {page} {number}"
        for path, text in texts().items()
        for page, numbers in rule_book.cited_sections(text)
        for number in numbers or [""]
        if page not in headings or (number and number not in headings[page])
    }
    assert not unknown


def test_cited_documents_are_in_the_repository() -> None:
    """Who reads the code cannot open a file that is somewhere else."""
    cited = {f"{path}: {name}" for path, text in texts().items() for name in rule_book.markdown_files(text)}
    assert not {found for found in cited if not (ROOT / found.rpartition(": ")[2]).is_file()}
