# SPDX-License-Identifier: Apache-2.0
"""Messages that the documentation quotes are in the code: who searches for what a log says must find it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.code_texts import ROOT, unknown

SOURCE = ROOT / "doc" / "source"
#: Pages without messages: decisions of the past, names of metrics.
WITHOUT = {
    "reference/metrics.rst",
    *(f"explanation/adr/{path.name}" for path in SOURCE.rglob("adr/*.rst")),
}
PAGES = sorted({str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.rst")} - WITHOUT)
#: Texts of openstacksdk.
FOREIGN = ("is not a valid region name",)
#: What begins so is a command, code or a query, and no message.
OTHERS = re.compile(
    r"nodepool |tox |python|sphinx|openstack |tools/|systemctl|pip |docker|from \.|max by|sum by|[A-Z_]+=\S"
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


@pytest.mark.parametrize(
    ("quotation", "missing"),
    [
        ("Node is ready after ...", []),
        ("Node is ready after 12 s", []),
        ("Node is almost ready after 12 s", ["Node is almost ready after"]),
        ("Static host ... is not registered: cannot resolve 'x'", []),
    ],
)
def test_pieces(quotation: str, missing: list[str]) -> None:
    assert unknown(quotation) == missing
