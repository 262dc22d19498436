# SPDX-License-Identifier: Apache-2.0
"""Imports of launcher, driver and runtime form no circles; those for types and those in functions count, too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import nodepool

TOP = Path(nodepool.__file__).parent
PACKAGES = ("launcher", "driver", "runtime")


def module_of(path: Path) -> str:
    parts = ["nodepool", *path.relative_to(TOP).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module) -> Iterator[str]:
    """All that a file imports: when it is loaded, when a function of it is called, and for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def graph() -> dict[str, set[str]]:
    modules = {module_of(path): path for name in PACKAGES for path in (TOP / name).rglob("*.py")}
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = set(imported(tree))
        # "from a.b import c": the module a.b.c, or a name in a.b.
        found[module] = {name if name in modules else name.rpartition(".")[0] for name in names} & modules.keys()
        found[module].discard(module)
    return found


def circles(edges: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules each of which leads to each other one."""
    reachable: dict[str, set[str]] = {}
    for module in edges:
        seen: set[str] = set()
        todo = list(edges[module])
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo.extend(edges.get(one, ()))
        reachable[module] = seen
    return {
        frozenset(other for other in seen if module in reachable.get(other, ()))
        for module, seen in reachable.items()
        if module in seen
    }


def test_no_circles() -> None:
    assert {tuple(sorted(circle)) for circle in circles(graph())} == set()


def test_all_imports_count() -> None:
    source = """
import a.b
if TYPE_CHECKING:
    from c import d
def f():
    from e import g
"""
    assert set(imported(ast.parse(source))) == {"a.b", "c.d", "e.g"}


def test_circles_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(edges) == {frozenset("abc"), frozenset("de")}
