# SPDX-License-Identifier: Apache-2.0
"""No two classes have one name for different things."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "nodepool"


def _several(named: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that more than one file has."""
    where: defaultdict[str, list[str]] = defaultdict(list)
    for name, path in named:
        where[name].append(str(path.relative_to(PACKAGE)))
    return {name: paths for name, paths in where.items() if len(paths) > 1}


def test_classes() -> None:
    shared = _several(
        (node.name, path)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert not shared
