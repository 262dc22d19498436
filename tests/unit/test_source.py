# SPDX-License-Identifier: Apache-2.0
"""What holds for all of the source: who uses drivers and Kazoo's inside, circles, broad clauses, released names."""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import requests
from ibm_cloud_sdk_core.token_managers.token_manager import TokenManager
from openstack.config import OpenStackConfig

import nodepool
from nodepool.driver.gateway import HOOKS
from nodepool.zk import wire
from tests.support.tables import rows

TOP = Path(nodepool.__file__).parent
ROOT = TOP.parent
GUIDE = ROOT / "doc" / "source" / "drivers" / "released" / "index.rst"
BROAD = re.compile(r"^\s*except\b.*\b(Exception|BaseException|ERRORS)\b.*:|^\s*except\s*:")
#: Clauses that catch whatever is raised. It only shrinks: there is `nodepool.guard`, and the gateway for drivers.
MOST_BROAD = 39


def test_broad_clauses() -> None:
    """They are few, each with a comment next to it."""
    found = []
    for path in sorted([*TOP.rglob("*.py"), *(ROOT / "simulators").rglob("*.py")]):
        lines = path.read_text(encoding="utf-8").splitlines()
        found += [
            (path.name, "\n".join(lines[max(0, number - 2) : number + 3]))
            for number, line in enumerate(lines)
            if BROAD.match(line)
        ]
    assert 10 < len(found) <= MOST_BROAD
    assert [(name, text) for name, text in found if "#" not in text] == []


@cache
def trees() -> dict[Path, ast.Module]:
    return {path.relative_to(TOP): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(TOP.rglob("*.py"))}


def names(node: ast.expr) -> str:
    """The last name before the dot: ``a.b().c`` -> ``b``."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "?"


def imported(tree: ast.AST) -> Iterator[str]:
    """All that a file imports: when it is loaded, when a function of it is called, and for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# -- the inside of Kazoo is touched in `nodepool.zk.wire` only (ADR 1): another release is a matter of that file

WIRE, FACTORY = Path("zk/wire.py"), Path("zk/client.py")
#: What the rest of `nodepool.zk` imports of Kazoo. These are documented, and older than anything that we support.
PUBLIC = ("kazoo.exceptions.", "kazoo.retry.RetryFailedError", "kazoo.client.KazooState")
#: Names under which a client of Kazoo, or what belongs to one, goes in our code; in `nodepool.zk` it may be any.
KAZOO_NAMES = {"kazoo", "_kazoo", "lock"}


def private(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Private names that a file uses, also by ``getattr``: line, the last name before the dot, the private name."""
    for node in (one for one in ast.walk(tree) if isinstance(one, ast.expr)):
        owner, name = "", ""
        if isinstance(node, ast.Attribute):
            owner, name = names(node.value), node.attr
        elif isinstance(node, ast.Call) and names(node.func) in ("getattr", "setattr", "hasattr") and node.args[1:]:
            owner, name = names(node.args[0]), str(getattr(node.args[1], "value", ""))
        if owner and name.startswith("_") and not name.endswith("__"):
            yield node.lineno, owner, name


def test_kazoo() -> None:
    """No private name of its objects; and no import of more than is public."""
    wrong = []
    for path, tree in trees().items():
        in_zk = path.is_relative_to("zk")
        if path == WIRE:
            continue
        for name in imported(tree):
            allowed = in_zk and name.startswith(PUBLIC) if name.startswith("kazoo") else path == FACTORY
            if name.startswith(("kazoo", "nodepool.zk.wire")) and not allowed:
                wrong.append(f"{path}: {name}")
        for line, owner, name in private(tree):
            if owner not in OWN if in_zk else owner in KAZOO_NAMES:
                wrong.append(f"{path}: line {line}: {owner}.{name}")
    assert wrong == []


# -- private names of libraries: all that the source uses, where a release may lack them

OWN = {"self", "cls", "super"}
PARSER = argparse.ArgumentParser()
#: Besides Kazoo's, which `nodepool.zk.wire` lists: library -> what has the names, and the names.
PRIVATE: dict[str, list[tuple[object, set[str]]]] = {
    "ibm-cloud-sdk-core": [(TokenManager, {"_request"})],
    "Python": [
        (PARSER, {"_actions"}),
        (PARSER.add_argument_group(), {"_group_actions"}),
        (argparse, {"_SubParsersAction"}),
        (sys, {"_current_frames"}),
    ],
    "openstacksdk": [(OpenStackConfig(load_yaml_config=False), {"_config_files", "_secure_files"})],
    "requests": [(requests.Response(), {"_content"})],
}


def test_private_names_of_libraries() -> None:
    """What the installed releases lack, by name; ``tox -e newest`` runs this first. Each name in use is listed."""
    lacking = {
        library: [name for thing, used in things for name in sorted(used) if not hasattr(thing, name)]
        for library, things in PRIVATE.items()
    }
    lacking["kazoo"] = wire.missing()
    assert {library: found for library, found in lacking.items() if found} == {}
    used = {
        name for path, tree in trees().items() if path != WIRE for _, owner, name in private(tree) if owner not in OWN
    }
    listed = set().union(*(used for things in PRIVATE.values() for _, used in things))
    # Public ones of Python, and one of ours.
    assert used - {"_asdict", "_exit", "_replace", "_state_changed"} == listed


# -- drivers are called through `nodepool.driver.gateway` alone

#: The drivers themselves, what drives them in tests of their authors, and the gateway.
FREE = (
    *(f"driver/{name}/" for name in ("fake", "metastatic", "openstack", "static")),
    *("driver/gateway.py", "testing/"),
)
#: Names that other objects have, too: a call of one counts if it is made on something that is named so.
COMMON = {name for name in dir(threading.Thread) if not name.startswith("_")} | {"stop", "launch", "idle", "advance"}
DRIVEN = {"provider", "manager", "adapter", "handler", "hooks", "machine", "old"}
#: It looks at the signature of getCreateStateMachine, without a call.
ALLOWED = ["driver/statemachine/cloud.py: getCreateStateMachine"]


def test_only_the_gateway_calls_a_driver() -> None:
    """A hook is not called, nor handed on. An object may use its own ones."""
    hooks, found = {hook.name for hook in HOOKS}, []
    for path, tree in trees().items():
        for node in ast.walk(tree) if not str(path).startswith(FREE) else ():
            if isinstance(node, ast.Attribute) and node.attr in hooks:
                on = names(node.value).strip("_")
                if on not in ("self", "super", "cls", "gateway") and (node.attr not in COMMON or on in DRIVEN):
                    found.append(f"{path}: {node.attr}")
    assert found == ALLOWED


def test_no_circles() -> None:
    """Imports of launcher, driver and runtime form none; those for types and those in functions count, too."""
    modules = {
        ".".join(["nodepool", *path.with_suffix("").parts]).removesuffix(".__init__"): tree
        for path, tree in trees().items()
        if path.parts[0] in ("launcher", "driver", "runtime")
    }
    left = {}
    for module, tree in modules.items():
        # "from a.b import c": the module a.b.c, or a name in a.b.
        found = {name if name in modules else name.rpartition(".")[0] for name in imported(tree)}
        left[module] = found & set(modules) - {module}
    assert len(left) > 50
    # What leads nowhere, and what nothing leads to, is in none.
    while ends := {one for one, to in left.items() if not to & set(left) or one not in set().union(*left.values())}:
        left = {one: to for one, to in left.items() if one not in ends}
    assert left == {}


@rows(__file__, "test_names_of_released_drivers")
def test_names_of_released_drivers(module: str, names: list[str]) -> None:
    """They are there, and the guide promises them (doc/source/drivers/released/index.rst); others are not."""
    found = importlib.import_module(module)
    text = GUIDE.read_text(encoding="utf-8")
    start = text.index(f"\n   ``{module}`` | ")
    row = re.split(r"\n\n|\n   ``nodepool", text[start + 1 :])[0]
    for name in names:
        assert getattr(found, name) is getattr(found, name)
        assert f"``{name}``" in row
    with pytest.raises(AttributeError, match="no_such_name"):
        found.no_such_name  # noqa: B018


def test_commands_do_not_import_them() -> None:
    """A start of the commands and of the launcher costs nothing for it."""
    code = (
        "import sys, nodepool.cmd.cli, nodepool.cmd.launcher, nodepool.launcher.supervisor, nodepool.driver.static;"
        "print([name for name in sys.modules if name.startswith('nodepool.compat')])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
