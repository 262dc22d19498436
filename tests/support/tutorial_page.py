# SPDX-License-Identifier: Apache-2.0
"""What a page of the tutorial tells to do, section by section: commands to type, and files to write."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PAGES: Final = Path(__file__).parents[2] / "doc" / "source" / "tutorial"
_BLOCK: Final = re.compile(r"^\.\. code-block:: (\w+)\n\n((?: {3}.*\n|\n)+)", re.MULTILINE)
_SECTION: Final = re.compile(r"^\d+\. (.+)\n-+\n", re.MULTILINE)
#: A file in a sentence before its text.
_FILE: Final = re.compile(r"``(/[^`]+)``")


class Step(NamedTuple):
    """A command, or a file with its text."""

    command: str = ""
    path: str = ""
    text: str = ""


def sections(page: str) -> dict[str, list[Step]]:
    """Title -> what it tells to do, in order.

    :raises AssertionError: a block for a file does not say which file.
    """
    _, *parts = _SECTION.split((PAGES / page).read_text(encoding="utf-8"))
    return {title: list(_steps(text)) for title, text in zip(parts[::2], parts[1::2], strict=True)}


def _steps(text: str) -> Iterator[Step]:
    end = 0
    for block in _BLOCK.finditer(text):
        body = textwrap.dedent(block[2]).strip() + "\n"
        if block[1] == "console":
            yield from (Step(command=line[2:]) for line in body.splitlines() if line.startswith("$ "))
        else:
            # The last paragraph before it.
            paragraph = text[end : block.start()].strip().rpartition("\n\n")[2]
            names = _FILE.findall(paragraph)
            assert names, f"which file is it? {paragraph}"
            yield Step(path=names[0], text=body)
        end = block.end()
