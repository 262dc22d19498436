# SPDX-License-Identifier: Apache-2.0
"""Drivers are called through `nodepool.driver.gateway`, and by nobody else."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from pathlib import Path

import nodepool
from nodepool.driver import gateway

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
    """Hooks that are called, or handed to somebody who will. An object may use its own ones."""
    names = {hook.name for hook in gateway.HOOKS}
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute) or node.attr not in names:
            continue
        on = receiver(node.value)
        if on in ("self", "super", "cls", "gateway") or (node.attr in COMMON and on not in DRIVEN):
            continue
        yield node


def found() -> dict[str, list[str]]:
    calls: dict[str, list[str]] = {}
    for path in sorted(TOP.rglob("*.py")):
        name = path.relative_to(TOP).as_posix()
        if not name.startswith(FREE):
            for node in direct_calls(path.read_text(encoding="utf-8")):
                calls.setdefault(name, []).append(f"{node.lineno}: {ast.unparse(node)}")
    return calls


def test_nobody_else_calls_a_driver() -> None:
    assert {name: calls for name, calls in found().items() if len(calls) > ALLOWED.get(name, (0, ""))[0]} == {}


def test_the_list_of_exceptions_shrinks() -> None:
    """What is not needed any more is taken out of it."""
    calls = found()
    assert {name: len(calls.get(name, ())) for name in ALLOWED} == {name: count for name, (count, _) in ALLOWED.items()}


def test_what_is_found() -> None:
    source = """
manager.pausedReason()
worker.getProviderManager().getRequestHandler(worker, request)
submit(self._adapter.listInstances)
handler.launch(node)
self.provider.stop()
sum(handler.alive_thread_count for handler in handlers)
"""
    assert [node.lineno for node in direct_calls(source)] == [2, 3, 4, 5, 6, 7]


def test_what_is_not_found() -> None:
    source = """
thread.join()
self.stop()
super().errorLabels()
gateway.launch(handler, node)
self.checkReusableNode(node)
worker.start()
"""
    assert list(direct_calls(source)) == []
