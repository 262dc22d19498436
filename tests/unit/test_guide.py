# SPDX-License-Identifier: Apache-2.0
"""What the documentation quotes from the source must be there, and whole."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodepool import exceptions

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "doc" / "source"
EXAMPLE = ROOT / "nodepool" / "driver" / "example"


@dataclass(frozen=True)
class Quotation:
    """One ``literalinclude``."""

    page: str
    path: Path
    start: str
    end: str | None

    def lines(self) -> list[str]:
        """What the reader sees. Fails if a mark is not there exactly once, or in the wrong order."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        start = self._line(lines, self.start) + 1
        end = len(lines) if self.end is None else self._line(lines, self.end)
        assert start < end, f"{self.end} stands before {self.start} in {self.path.name}"
        return lines[start:end]

    def _line(self, lines: list[str], mark: str) -> int:
        found = [number for number, line in enumerate(lines) if line.strip() == mark]
        assert len(found) == 1, f"{self.page}: {mark!r} stands {len(found)} times in {self.path.name}"
        return found[0]


def quotations() -> list[Quotation]:
    found = []
    for page in sorted(SOURCE.rglob("*.rst")):
        for name, options in re.findall(
            r"^\.\. literalinclude:: (\S+)\n((?:   :.*\n)*)", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
            marks = dict(re.findall(r"   :([\w-]+): (.*)\n", options))
            found.append(
                Quotation(
                    str(page.relative_to(SOURCE)),
                    (page.parent / name).resolve(),
                    marks.get("start-after", ""),
                    marks.get("end-before"),
                )
            )
    return found


@pytest.mark.parametrize("quotation", quotations(), ids=lambda quotation: f"{quotation.path.name}{quotation.start[1:]}")
def test_quotation_is_whole(quotation: Quotation) -> None:
    """The file and the marks are there, and between them stands Python that is complete, with a definition."""
    tree = ast.parse(textwrap.dedent("\n".join(quotation.lines())))
    assert any(isinstance(part, ast.ClassDef | ast.FunctionDef) for part in tree.body)


def test_every_part_of_the_example_is_shown() -> None:
    """Each mark in the example begins a quotation of the driver guide."""
    shown = {
        (quotation.path, quotation.start) for quotation in quotations() if quotation.page == "drivers/writing/index.rst"
    }
    marked = {
        (path, line.strip())
        for path in EXAMPLE.glob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.fullmatch(r" *# \[\w+\]", line)
    }
    # The class around the calls: the guide describes it, the file is there to be read.
    assert marked - shown == {(EXAMPLE / "client.py", "# [client]")}


def test_errors_are_those_that_exist() -> None:
    """The table of errors names classes of nodepool.exceptions and the keys by which they are counted."""
    page = (SOURCE / "drivers" / "writing" / "index.rst").read_text(encoding="utf-8")
    table = page.partition("\nErrors\n------")[2].partition("\nThe contract suite\n")[0]
    rows = re.findall(r"   \* - (.*)\n     - (?:.*\n       .*|.*)\n(?:       .*\n)*     -(.*)\n", table)
    assert len(rows) > 8
    for names, counted in rows:
        for name in re.findall(r"``(\w+)``", names):
            error = getattr(exceptions, name, None) or getattr(builtins, name)
            key = getattr(error, "statsd_key", "error.unknown")
            assert counted.strip() in ("", "by class", f"``{key}``"), f"{name} is counted as {key}"
