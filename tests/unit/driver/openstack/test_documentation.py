# SPDX-License-Identifier: Apache-2.0
"""What doc/source/drivers/openstack/troubleshooting.rst says is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "doc/source/drivers/openstack/troubleshooting.rst").read_text(encoding="utf-8")
#: Texts of Nova stand in the simulator.
SOURCES = [*ROOT.glob("nodepool/driver/**/*.py"), *ROOT.glob("simulators/openstack/*.py")]
CODE = " ".join(re.sub(r'"\n\s*f?r?"', "", file.read_text(encoding="utf-8")) for file in SOURCES)
#: Of openstacksdk.
FOREIGN = {"is not a valid region name", "Security group", "(HTTP 401)"}


def quoted_errors() -> list[str]:
    """Pieces of the texts in the first column of the table of errors."""
    cells = [line for line in PAGE.splitlines() if line.startswith("   * - ``")]
    texts = [text for cell in cells for text in re.findall(r"``(.*?)``", cell)]
    pieces = [piece for text in texts for piece in re.split(r"\.\.\.|'x'|, line N|of N s|ADDRESS:22|\(The", text)]
    return [piece.strip(" ():,") for piece in pieces if len(piece.strip(" ():,")) > 3]


@pytest.mark.parametrize("text", quoted_errors())
def test_errors_are_those_of_the_code(text: str) -> None:
    """Whoever looks for what stands in a log must find it in the table."""
    assert text in CODE or any(text in foreign or foreign in text for foreign in FOREIGN)
