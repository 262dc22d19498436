# SPDX-License-Identifier: Apache-2.0
"""No file of launcher, driver or runtime needs itself: imports form no circles, those for types included."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import nodepool

TOP = Path(nodepool.__file__).parent
PACKAGES = ("launcher", "driver", "runtime")
#: Circles that close only through an import for type checkers. The list only shrinks. A provider makes the handlers of
#: its requests, and a handler asks its provider: the contract with drivers has it so.
FOR_TYPES: set[frozenset[str]] = {
    frozenset(f"nodepool.driver.{name}" for name in group)
    for group in (
        ("static.handler", "static.provider"),
        ("fake.handler", "fake.provider"),
        (
            "framework.deadlock_avoidance",
            "framework.handler_hooks",
            "framework.nodeset",
            "framework.worker_view",
            "handler",
            "interface",
        ),
        (
            "statemachine.deletion",
            "statemachine.handler",
            "statemachine.launch",
            "statemachine.leaks",
            "statemachine.provider",
        ),
    )
}


def module_of(path: Path) -> str:
    parts = ["nodepool", *path.relative_to(TOP).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def imported(body: list[ast.stmt], *, types: bool) -> Iterator[str]:
    """What a module imports when it is loaded; not what its functions import when they are called.

    :param types: also what it imports for type checkers.
    """
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.If | ast.Try) and (types or not is_for_types(node)):
            yield from imported(node.body, types=types)


def graph(*, types: bool) -> dict[str, set[str]]:
    modules = {module_of(path): path for name in PACKAGES for path in (TOP / name).rglob("*.py")}
    found: dict[str, set[str]] = {}
    for module, path in modules.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = set(imported(tree.body, types=types))
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
    assert circles(graph(types=False)) == set()


def test_no_circles_for_types() -> None:
    assert {tuple(sorted(circle)) for circle in circles(graph(types=True)) - FOR_TYPES} == set()


def test_the_list_of_circles_shrinks() -> None:
    assert FOR_TYPES - circles(graph(types=True)) == set()


def test_circles_are_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(edges) == {frozenset("abc"), frozenset("de")}
