# SPDX-License-Identifier: Apache-2.0
"""Tables of tests: inputs and expected outputs, a row each, in ``tables.yaml`` beside the tests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

_DRIVERS = Path(__file__).parents[1] / "unit" / "driver"


@cache
def _tables(directory: Path) -> Any:
    # Each process of pytest reads all of them, and the loader that is written in Python takes ten times as long.
    return yaml.load((directory / "tables.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)


def table(file: str, name: str) -> Any:
    """A table as it is, of the directory of a test.

    :param file: of the test, ``__file__``.
    """
    return _tables(Path(file).parent)[name]


def rows(file: str, name: str) -> pytest.MarkDecorator:
    """Runs a test with each row of a table; the first row has the names of its parameters.

    :param file: of the test, ``__file__``.
    """
    names, *values = table(file, name)
    if len(names) == 1:
        return pytest.mark.parametrize(names[0], [value for (value,) in values])
    return pytest.mark.parametrize(names, values)


def _errors(base: type[BaseException] = Exception) -> Iterator[type[BaseException]]:
    yield base
    for one in base.__subclasses__():
        yield from _errors(one)


def driver_table(driver: str, name: str) -> Any:
    """A table of the unit tests of a driver. What is the name of an error becomes the error."""
    kinds = {one.__name__: one for one in _errors() if one.__module__.split(".")[0] in ("nodepool", "builtins")}
    found = _tables(_DRIVERS / driver)[name]

    def read(row: Any) -> Any:
        return [kinds.get(cell, cell) if isinstance(cell, str) else cell for cell in row]

    return found if isinstance(found, dict) else [read(row) if isinstance(row, list) else row for row in found]
