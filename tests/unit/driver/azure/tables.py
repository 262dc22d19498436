# SPDX-License-Identifier: Apache-2.0
"""Tables of rows in YAML, with the sources that they are from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def _document(driver: str) -> dict[str, Any]:
    path = Path(__file__).parents[1] / driver / "tables.yaml"
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def _errors(base: type[BaseException] = Exception) -> Iterator[type[BaseException]]:
    yield base
    for one in base.__subclasses__():
        yield from _errors(one)


def table(driver: str, name: str) -> Any:
    """A part of the tables of a driver. What is the name of an error becomes the error."""
    kinds = {one.__name__: one for one in _errors() if one.__module__.split(".")[0] in ("nodepool", "builtins")}
    rows = _document(driver)[name]

    def read(row: Any) -> Any:
        return [kinds.get(cell, cell) if isinstance(cell, str) else cell for cell in row]

    return rows if isinstance(rows, dict) else [read(row) if isinstance(row, list) else row for row in rows]
