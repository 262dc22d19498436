# SPDX-License-Identifier: Apache-2.0
"""The texts in the code, and whether a text that a page quotes is one of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: What stands for something else in a text of the code.
_PLACEHOLDER: Final = re.compile(r"%(?:\(\w+\))?[-#0 +]*[\d.]*[a-zA-Z%]|\{[^{}]*\}")
#: Where a quotation may be put together of several texts, and what stands for something else in it.
_VARIABLE: Final = re.compile(r"[:;(),]|\.{3}|…|\d[\d.]*|'[^']*'|<[^<>]*>|\w+://\S+|\b[A-Z]\b|\bADDRESS\b|\bx\b")


@cache
def texts() -> str:
    """All texts of the code and of the simulated clouds, a line each, without their placeholders."""
    found: set[str] = set()
    for path in sorted(path for place in ("nodepool", "simulators") for path in (ROOT / place).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(" ".join(part.split()) for part in _PLACEHOLDER.split(node.value))
    return "\n".join(sorted(found))


def pieces(quotation: str) -> Iterator[str]:
    """What a quotation says itself, between what stands for something else."""
    for piece in _VARIABLE.split(quotation):
        stripped = piece.strip(" ():,;.")
        if re.search(r"[A-Za-z]{3}", stripped):
            yield stripped


def unknown(quotation: str) -> list[str]:
    """The pieces of a quotation that no text of the code has."""
    return [piece for piece in pieces(quotation) if piece not in texts()]
