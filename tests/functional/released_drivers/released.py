# SPDX-License-Identifier: Apache-2.0
"""The drivers of the released package, in the directory that the tox environment installed it into."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

#: Environment variable: the directory that ``pip install --target`` filled with nodepool 11.0.0.
VARIABLE = "NODEPOOL_TEST_RELEASED"


def released_drivers() -> Path:
    """The directory with a directory for each driver. :raises LookupError: there is none."""
    site = os.environ.get(VARIABLE)
    if not site:
        raise LookupError(f"{VARIABLE} names no directory with the released package: run tox -e released-drivers")
    found = Path(site) / "nodepool" / "driver"
    if not (found / "static" / "__init__.py").is_file():
        raise LookupError(f"there are no drivers in {found}")
    return found


def driver_names() -> list[str]:
    """Names of all drivers of the released package, sorted."""
    return sorted(path.parent.name for path in released_drivers().glob("*/__init__.py"))


def offer(directory: Path, copies: Mapping[str, str]) -> Path:
    """Makes a directory with copies of all drivers, and with nothing else of the released package. Returns it.

    :param copies: further names, and the drivers that they are of.
    """
    originals = {name: name for name in driver_names()}
    for name, original in {**originals, **copies}.items():
        shutil.copytree(released_drivers() / original, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    return directory
