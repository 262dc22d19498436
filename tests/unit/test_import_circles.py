# SPDX-License-Identifier: Apache-2.0
"""Imports of launcher, driver and runtime form no circles; those for types and those in functions count, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import nodepool

TOP = Path(nodepool.__file__).parent


def module_of(path: Path) -> str:
    parts = ["nodepool", *path.relative_to(TOP).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str) -> Iterator[str]:
    """All that a file imports: when it is loaded, when a function of it is called, and for type checkers."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def in_circles(edges: Mapping[str, set[str]]) -> set[str]:
    """Modules from which imports lead back to them, or from one circle to another."""
    left = dict(edges)
    # What leads nowhere, and what nothing leads to, is in none.
    while ends := {one for one, to in left.items() if not to & set(left) or one not in set().union(*left.values())}:
        left = {one: to for one, to in left.items() if one not in ends}
    return set(left)


def test_no_circles() -> None:
    modules = {
        module_of(path): path for name in ("launcher", "driver", "runtime") for path in (TOP / name).rglob("*.py")
    }
    edges = {}
    for module, path in modules.items():
        names = set(imported(path.read_text(encoding="utf-8")))
        # "from a.b import c": the module a.b.c, or a name in a.b.
        found = {name if name in modules else name.rpartition(".")[0] for name in names}
        edges[module] = found & set(modules) - {module}
    assert len(edges) > 50
    assert in_circles(edges) == set()
