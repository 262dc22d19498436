# SPDX-License-Identifier: Apache-2.0
"""No two classes and no two files have one name for different things."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "nodepool"

#: Files that share their name, and why.
FILES: Final = {
    "handler.py": "driver/handler.py has the base class, driver/statemachine/handler.py the handler of that framework",
    "supervisor.py": "each daemon has one: what it is made of",
    "worker.py": "runtime/worker.py has the base class, launcher/pool/worker.py the worker of a pool",
}
#: Packages with a file for each thing that others do, so that they share its name: commands, sections of the
#: configuration, listings, metrics and pages; the parts of one driver; and what tests of drivers use.
BY_THING: Final = ("cmd", "config", "listing", "metrics", "testing", "web")
DRIVERS: Final = (
    *("aws", "azure", "example", "fake", "gce", "ibmvpc", "kubernetes", "metastatic"),
    *("openshift", "openshiftpods", "openstack", "static"),
)


def _several(named: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that more than one file has."""
    where: defaultdict[str, list[str]] = defaultdict(list)
    for name, path in named:
        where[name].append(str(path.relative_to(PACKAGE)))
    return {name: paths for name, paths in where.items() if len(paths) > 1}


def _is_by_thing(path: Path) -> bool:
    first, second = path.relative_to(PACKAGE).parts[:2]
    return first in BY_THING or (first == "driver" and second in DRIVERS)


def test_classes() -> None:
    shared = _several(
        (node.name, path)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert not shared


def test_files() -> None:
    shared = _several(
        (path.name, path)
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.name != "__init__.py" and path.parent != PACKAGE and not _is_by_thing(path)
    )
    assert set(shared) == set(FILES), shared


def test_drivers_are_those_that_exist() -> None:
    """Else a package of the framework would be left out unseen."""
    found = {path.parent.name for path in (PACKAGE / "driver").glob("*/__init__.py")}
    assert set(DRIVERS) == found - {"framework", "statemachine"}
