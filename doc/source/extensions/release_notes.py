# SPDX-License-Identifier: Apache-2.0
"""Release notes of what is not released yet, made of the fragments in ``releasenotes/``.

In a page, ``.. release-notes::`` becomes a section for each type of fragment, in the order of ``pyproject.toml``.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
DIRECTIVE: Final = re.compile(r"^\.\. release-notes::\n", re.MULTILINE)


def types() -> dict[str, str]:
    """Type of a fragment, as in the name of its file -> heading."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["towncrier"]
    return {entry["directory"]: entry["name"] for entry in settings["type"]}


def fragments(kind: str) -> list[str]:
    """The texts of one type."""
    return [path.read_text(encoding="utf-8").strip() for path in sorted(ROOT.glob(f"releasenotes/*.{kind}.rst"))]


def expand(text: str) -> str:
    """A page with its notes."""
    return DIRECTIVE.sub(lambda _: "\n".join(_notes()) + "\n", text)


def _notes() -> Iterator[str]:
    for kind, heading in types().items():
        yield from (heading, "-" * len(heading), "")
        for note in fragments(kind):
            yield "* " + textwrap.indent(note, "  ").lstrip()
            yield ""
    released = ROOT / "CHANGELOG.rst"
    if released.exists():
        yield released.read_text(encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """For Sphinx. The notes are put into the text of a page before it is parsed."""

    def read(app: Any, page: str, source: list[str]) -> None:
        source[0] = expand(source[0])

    app.connect("source-read", read)
    return {"parallel_read_safe": True}
