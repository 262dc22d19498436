# SPDX-License-Identifier: Apache-2.0
"""Messages that the documentation quotes are in the code: who searches for what a log says must find it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
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


SOURCE = ROOT / "doc" / "source"
#: Pages without messages: decisions of the past, names of metrics.
WITHOUT = {
    "reference/metrics.rst",
    *(f"explanation/adr/{path.name}" for path in SOURCE.rglob("adr/*.rst")),
}
PAGES = sorted({str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.rst")} - WITHOUT)
#: Texts of openstacksdk and OpenSSL.
FOREIGN = ("is not a valid region name", "CA cert does not include key usage extension")
#: What begins so is a command, code or a query, and no message.
OTHERS = re.compile(
    r"nodepool |apt-|uv |tox |python|sphinx|openstack |tools/|systemctl|pip |docker|from \.|max by|sum by|[A-Z_]+=\S"
)


def quotations(text: str) -> list[str]:
    """Literals of a page that are sentences or parts of them: three words, two of them ordinary ones in a row."""
    found = (" ".join(literal.split()) for literal in re.findall(r"(?<!`)``([^`]+)``(?!`)", text))
    return [
        quotation
        for quotation in found
        if len(quotation.split()) > 2
        and re.search(r"[a-z]{3,} [a-z]{2,}", quotation)
        and not re.search(r'["{}<>]|==', quotation)
        and not OTHERS.match(quotation)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_messages_are_those_of_the_code(page: str) -> None:
    found = quotations((SOURCE / page).read_text(encoding="utf-8"))
    wrong = {quotation: missing for quotation in found if quotation not in FOREIGN and (missing := unknown(quotation))}
    assert not wrong, f"{page} quotes what no text of the code says: {wrong}"


def test_quotations_are_found() -> None:
    """The test above looks at something."""
    assert len(quotations(Path(SOURCE / "how-to" / "logs.rst").read_text(encoding="utf-8"))) > 15
