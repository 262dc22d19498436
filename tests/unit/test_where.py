# SPDX-License-Identifier: Apache-2.0
"""The table "Where is it?" of the architecture page: each name is in its file; no answer needs more than two files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "doc" / "source" / "explanation" / "architecture.rst"


def rows() -> dict[str, list[tuple[str, str]]]:
    """Question -> (file, name in it) of each place of its answer."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("Where is it?\n")[2].partition("\nOne request\n")[0]
    found = re.findall(r"^   \* - (.+)\n     - (.+)$", section, re.MULTILINE)
    return {what: re.findall(r"``(nodepool/[\w/]+\.py)``: ``(\w+)``", where) for what, where in found[1:]}


@pytest.mark.parametrize("what", rows())
def test_it_is_there(what: str) -> None:
    places = rows()[what]
    assert 1 <= len(places) <= 2
    for path, name in places:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in defined(tree), f"{path} does not define {name}"


def defined(tree: ast.Module) -> set[str]:
    """Names of the classes, functions, methods and constants of a file."""
    names = {
        node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_table_is_read() -> None:
    assert len(rows()) >= 15
