# SPDX-License-Identifier: Apache-2.0
"""What holds for all of the source: names, clauses that catch everything, and names that drivers of 11.0.0 import."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nodepool
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
