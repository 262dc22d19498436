# SPDX-License-Identifier: Apache-2.0
"""What doc/source/configuration/openstack.rst says is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.config import ConfigPool, ProviderConfig
from tests.unit.driver.openstack.support import load, section

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "doc/source/configuration/openstack.rst").read_text(encoding="utf-8")
#: Texts of Nova stand in the simulator.
SOURCES = [*ROOT.glob("nodepool/driver/**/*.py"), *ROOT.glob("nodepool/testing/openstack/*.py")]
CODE = " ".join(re.sub(r'"\n\s*f?r?"', "", file.read_text(encoding="utf-8")) for file in SOURCES)
#: Of openstacksdk.
FOREIGN = {"is not a valid region name", "Security group", "(HTTP 401)"}


def quoted_errors() -> list[str]:
    """Pieces of the texts in the first column of the table of errors."""
    table = PAGE[PAGE.index("Troubleshooting\n") :]
    cells = [line for line in table.splitlines() if line.startswith("   * - ``")]
    texts = [text for cell in cells for text in re.findall(r"``(.*?)``", cell)]
    pieces = [piece for text in texts for piece in re.split(r"\.\.\.|'x'|, line N|of N s|ADDRESS:22|\(The", text)]
    return [piece.strip(" ():,") for piece in pieces if len(piece.strip(" ():,")) > 3]


@pytest.mark.parametrize("text", quoted_errors())
def test_errors_are_those_of_the_code(text: str) -> None:
    """Whoever looks for what stands in a log must find it in the table."""
    assert text in CODE or any(text in foreign or foreign in text for foreign in FOREIGN)


def keys(schema: Any) -> set[str]:
    return {str(key) for key in getattr(schema, "schema", schema)}


def test_every_option_is_documented() -> None:
    """reference/configuration 7: and none that does not exist."""
    whole = load(section())[0].getSchema().schema.validators[0]
    pool = whole["pools"][0]
    label = pool["labels"][0].validators[0]
    own = keys(whole) - keys(ProviderConfig.getCommonSchemaDict()) - {"pools"}
    own |= keys(pool) - keys(ConfigPool.getCommonSchemaDict())
    own |= keys(label) | keys(whole["diskimages"][0]) | keys(whole["cloud-images"][0].validators[0])
    missing = sorted(key for key in own if f"``{key}``" not in PAGE)
    assert missing == []
