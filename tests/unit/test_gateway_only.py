# SPDX-License-Identifier: Apache-2.0
"""Drivers are called through `nodepool.driver.gateway` alone."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from pathlib import Path

import nodepool
from nodepool.driver.gateway import HOOKS

TOP = Path(nodepool.__file__).parent
#: The drivers themselves, what drives them in tests of their authors, and the gateway.
FREE = (
    "driver/example/",
    "driver/fake/",
    "driver/metastatic/",
    "driver/openstack/",
    "driver/static/",
    "driver/gateway.py",
    "driver/hooks.py",
    "testing/",
)
#: Names that other objects have, too: a call of one counts if it is made on something that is named so.
COMMON = {name for name in dir(threading.Thread) if not name.startswith("_")} | {"stop", "launch", "idle", "advance"}
DRIVEN = {"provider", "manager", "adapter", "handler", "hooks", "machine", "old"}
#: path -> (calls, reason). To be empty, but for what has a reason to stay.
ALLOWED: dict[str, tuple[int, str]] = {
    "driver/statemachine/adapter.py": (1, "looks at the signature of getCreateStateMachine, without a call"),
}


def receiver(node: ast.expr) -> str:
    """The last name before the dot: ``a.b().c`` -> ``b``."""
    while isinstance(node, ast.Call):
        node = node.func
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.strip("_")


def direct_calls(source: str) -> Iterator[ast.Attribute]:
    """Hooks that are called, or handed on. An object may use its own ones."""
    names = {hook.name for hook in HOOKS}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute) or node.attr not in names:
            continue
        on = receiver(node.value)
        if on in ("self", "super", "cls", "gateway") or (node.attr in COMMON and on not in DRIVEN):
            continue
        yield node


def test_only_the_gateway_calls_a_driver() -> None:
    """What is not needed any more is taken out of the list of exceptions."""
    found: dict[str, list[str]] = {}
    for path in sorted(TOP.rglob("*.py")):
        name = path.relative_to(TOP).as_posix()
        if not name.startswith(FREE):
            for node in direct_calls(path.read_text(encoding="utf-8")):
                found.setdefault(name, []).append(f"{node.lineno}: {ast.unparse(node)}")
    assert {name: calls for name, calls in found.items() if len(calls) != ALLOWED.get(name, (0, ""))[0]} == {}
    assert set(ALLOWED) <= set(found)
