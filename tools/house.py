#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Size and shape of the code: a table, and exit code 1 when a figure is above its bar.

A bar that was reached must not be lost. Who makes a figure smaller lowers its bar. Code lines are those without blanks,
comments and docstrings; ``nodepool/testing`` is no part of the product.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parents[1]
#: Figure -> the highest value that passes. The bar of the product was 50,000 lines. Then these came to it: history and
#: pictures of the web pages, ``nodepool request``, ``explain`` of anything, completion of names, JSON Schema, plug-ins;
#: fair shares, access, placement, requests over several pools, ready-checks, consoles; imports and promotion of images.
BARS: Final = {
    "product code lines": 54_470,
    "product files": 225,
    "product files below 60 code lines": 16,
    "product files with one importer": 23,
    "Protocol classes": 8,
    "code lines of the longest product file": 600,
    "test code lines": 52_350,
    "lines of documentation": 10_970,
}


def code_lines(text: str, tree: ast.Module) -> int:
    documented: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                documented.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(number not in documented and bool(line.strip()) and line.strip()[0] != "#" for number, line in lines)


def imported(tree: ast.Module) -> Iterator[str]:
    """Modules, and names that may be modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def figures(top: Path) -> dict[str, int]:
    listed = subprocess.run(["git", "ls-files"], cwd=top, capture_output=True, text=True, check=True, timeout=60)
    names = listed.stdout.splitlines()
    product = [name for name in names if name.startswith("nodepool/") and name.endswith(".py")]
    product = [name for name in product if not name.startswith("nodepool/testing/")]
    tests = [name for name in names if name.startswith("tests/") and name.endswith(".py")]
    texts = {name: (top / name).read_text(encoding="utf-8") for name in (*product, *tests)}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    sizes = {name: code_lines(texts[name], trees[name]) for name in texts}
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in product}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name in product:
        for module in imported(trees[name]):
            if modules.get(module, name) != name:
                importers[modules[module]].add(name)
    whole = [name for name in product if not name.endswith("__init__.py")]
    classes = [node for name in product for node in ast.walk(trees[name]) if isinstance(node, ast.ClassDef)]
    bases = [{ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases} for node in classes]
    pages = [name for name in names if name.startswith("doc/source/") and name.endswith(".rst")]
    values = (
        sum(sizes[name] for name in product),
        len(product),
        sum(sizes[name] < 60 for name in whole),
        sum(len(importers[name]) == 1 for name in whole),
        sum("Protocol" in base for base in bases),
        max(sizes[name] for name in product),
        sum(sizes[name] for name in tests),
        sum(len((top / name).read_text(encoding="utf-8").splitlines()) for name in pages),
    )
    return dict(zip(BARS, values, strict=True))


def main() -> int:
    found = figures(TOP)
    for name, value in found.items():
        print(f"{name:<42}{value:>8,}   bar {BARS[name]:>8,}{'   LOST' if value > BARS[name] else ''}")
    return int(any(value > BARS[name] for name, value in found.items()))


if __name__ == "__main__":
    sys.exit(main())
