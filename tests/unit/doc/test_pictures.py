# SPDX-License-Identifier: Apache-2.0
"""The pictures that pages show are there, light and dark, and no others. ``tox -e pictures`` makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from doc.source.extensions import page_pictures

SOURCE: Final = Path(__file__).parents[3] / "doc" / "source"
#: Of all pictures together: the repository keeps each version of them.
MOST_BYTES: Final = 900_000


def test_pictures() -> None:
    shown = {name for page in SOURCE.rglob("*.rst") for name in page_pictures.names(page.read_text(encoding="utf-8"))}
    there = {path.name: path.stat().st_size for path in (SOURCE / "pictures").iterdir()}
    assert shown == set(there)
    assert sum(there.values()) <= MOST_BYTES


def test_side_by_side() -> None:
    lines = page_pictures.expand(".. page-picture:: a b\n   :alt: two\n").splitlines()
    assert lines[0] == ".. container:: side-by-side only-light"
    shown = [line.split()[-1] for line in lines if "image::" in line]
    assert shown == [f"/pictures/{name}-{scheme}.png" for scheme in ("light", "dark") for name in "ab"]
