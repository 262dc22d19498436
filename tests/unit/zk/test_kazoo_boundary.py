# SPDX-License-Identifier: Apache-2.0
"""The inside of Kazoo is touched in `nodepool.zk.wire` only (ADR 1): another release is a matter of that file."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import nodepool

ROOT = Path(nodepool.__file__).parent
WIRE = Path("zk/wire.py")
#: The only file outside that imports `nodepool.zk.wire`.
FACTORY = Path("zk/client.py")
#: What the rest of `nodepool.zk` imports of Kazoo. These are documented, and older than anything that we support.
PUBLIC = {
    *("kazoo.exceptions", "kazoo.retry.RetryFailedError", "kazoo.client.KazooState"),
    "kazoo.handlers.threading.SequentialThreadingHandler",
}
#: Names under which a client of Kazoo, or what belongs to one, goes in our code.
KAZOO_NAMES = {"kazoo", "_kazoo", "lock"}
OWN_NAMES = {"self", "cls", "super"}

FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
OUTSIDE = [path for path in FILES if path != WIRE]


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names of what is imported, with the module that it comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_uses(tree: ast.AST, owners: set[str] | None) -> Iterator[str]:
    """``owner._name`` and ``getattr(owner, "_name")``. ``owners``: only of these; None = of all but `OWN_NAMES`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "setattr", "hasattr")
            and isinstance(node.args[1], ast.Constant)
            and is_private(str(node.args[1].value))
        ):
            owner = node.args[0]
        else:
            continue
        while isinstance(owner, ast.Call):
            owner = owner.func
        name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else "?"
        if name in owners if owners is not None else name not in OWN_NAMES:
            yield f"line {node.lineno}: {ast.unparse(node)}"


@functools.cache
def parse(path: Path) -> ast.AST:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def test_imports() -> None:
    wrong = []
    for path in OUTSIDE:
        for name in imported(parse(path)):
            if name.partition(".")[0] == "kazoo":
                public = any(name == one or name.startswith(f"{one}.") for one in PUBLIC)
                allowed = public and path.is_relative_to("zk")
            else:
                allowed = path == FACTORY or not name.startswith("nodepool.zk.wire")
            if not allowed:
                wrong.append(f"{path}: {name}")
    assert wrong == []


def test_private_attributes() -> None:
    """Of objects of Kazoo; in `nodepool.zk` of any object, because what is what cannot be seen from a name."""
    wrong = []
    for path in OUTSIDE:
        owners = None if path.is_relative_to("zk") else KAZOO_NAMES
        wrong += [f"{path}: {use}" for use in private_uses(parse(path), owners)]
    assert wrong == []
