# SPDX-License-Identifier: Apache-2.0
"""The architecture page names files and names that exist, and its walks do not get longer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = ROOT / "doc" / "source" / "explanation" / "architecture.rst"
PACKAGE: Final = ROOT / "nodepool"


class Length(NamedTuple):
    """Files of a walk.

    :param most: more make the test fail; lower it when a walk gets shorter.
    :param bar: the number that is aimed at.
    """

    most: int
    bar: int


LENGTHS: Final = {
    "a node request served by ready nodes": Length(12, 14),
    "the launch of an AWS instance": Length(16, 16),
    "the deletion of a node": Length(10, 10),
    "one web page": Length(8, 8),
}


def test_names() -> None:
    """Of the table "Where is it?"."""
    table = PAGE.read_text(encoding="utf-8").partition("\nWhere is it?\n")[2].partition("\nOne request\n")[0]
    found = re.findall(r"``([\w/]+\.py)``: ``(\w+)``(?:, ``(\w+)``)?", table)
    assert len(found) > 30
    for path, *names in found:
        text = (PACKAGE / path).read_text(encoding="utf-8")
        for name in filter(None, names):
            assert re.search(rf"^ *((class|def) {name}\b|{name}(: .*)? = )", text, re.MULTILINE), f"{path}: {name}"


def walks() -> dict[str, str]:
    """Name of a walk -> its text."""
    section = PAGE.read_text(encoding="utf-8").partition("\nWalks\n")[2].partition("\nClouds\n")[0]
    _, *parts = re.split(r"^\.\. walk: (.+)$", section, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def files_of(walk: str) -> list[str]:
    """The last column of its table, as far as there is a step before it."""
    return re.findall(r"^\d+ .* {2}``([\w./]+)``$", walk, re.MULTILINE)


def test_each_walk_is_there() -> None:
    assert list(walks()) == list(LENGTHS)


@pytest.mark.parametrize(("name", "length"), LENGTHS.items())
def test_files(name: str, length: Length) -> None:
    """They exist. A page states how many there are."""
    walk = walks()[name]
    files = files_of(walk)
    rows = re.findall(r"^\d+ ", walk, re.MULTILINE)
    assert len(files) == len(rows), "a row has no file, or more than one"
    assert len(set(files)) == len(files), "a file is named twice"
    assert [path for path in files if not (PACKAGE / path).is_file()] == []
    stated = re.search(r": (\d+) files\. The bar is (\d+)\.$", walk, re.MULTILINE)
    assert stated is not None
    assert (int(stated[1]), int(stated[2])) == (len(files), length.bar)
    assert len(files) <= length.most
