# SPDX-License-Identifier: Apache-2.0
"""The parts of a pool: what the documentation says of them, and whom they know."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
FILES = [path for path in (ROOT / "nodepool" / "launcher" / "pool").glob("*.py") if path.name != "__init__.py"]


def test_documentation_has_each_file() -> None:
    page = (ROOT / "doc" / "source" / "explanation" / "architecture.rst").read_text(encoding="utf-8")
    begin = page.index("Parts of a pool\n")
    section = page[begin : page.index("Stages of a request\n", begin)]
    rows = re.findall(r"^   \* - (``.*)$", section, re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"``(\w+)``", row)]
    assert sorted([*listed, "worker"]) == sorted(path.stem for path in FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nobody_knows_the_worker_or_the_supervisor(path: Path) -> None:
    """Not even for type hints: a part is given what it uses."""
    text = path.read_text(encoding="utf-8")
    imports = re.findall(r"^\s*from nodepool\.launcher\.(\S+) import", text, re.MULTILINE)
    assert not {"pool.worker", "supervisor", "pool_threads"}.intersection(imports)
