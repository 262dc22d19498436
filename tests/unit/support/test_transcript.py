# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.transcript import Said, comparable, rewrite, transcript

PAGE = """\
Title
=====

.. code-block:: console

   $ nodepool status
   All is well.

   Capacity:

Text.

.. code-block:: console

   $ nodepool explain "a b"
"""


def test_commands_and_what_they_say() -> None:
    assert transcript(PAGE) == [Said(["status"], "All is well.\n\nCapacity:"), Said(["explain", "a b"], "")]


def test_rewritten(tmp_path: Path) -> None:
    page = tmp_path / "page.rst"
    page.write_text(PAGE, encoding="utf-8")
    rewrite(page, lambda arguments: f"says {len(arguments)}\n\nmore")
    assert transcript(page.read_text(encoding="utf-8")) == [
        Said(["status"], "says 1\n\nmore"),
        Said(["explain", "a b"], "says 2\n\nmore"),
    ]
    text = page.read_text(encoding="utf-8")
    rewrite(page, lambda arguments: f"says {len(arguments)}\n\nmore")
    assert page.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("since 01:06:33 (17 s); next try now", "since 2026-11-22 01:06:33 (2 h 3 min); next try in 4 s"),
        ("b\na\nb", "a\nb"),
        ("a  long text of a ce…  x", "a  long text of…  x"),
        ("l1  16015  12.0.0.dev0", "l1    7  12.0.1"),
        ("Age  00:00:17", "Age  01:00:18"),
        ("example  -  fa51645c-…  x", "example  -  7513e241-92…  x"),
    ],
)
def test_what_is_another_one_each_time(one: str, other: str) -> None:
    assert comparable(one) == comparable(other)


def test_other_texts_differ() -> None:
    assert comparable("cores 2 of 2") != comparable("cores 3 of 2")
    assert comparable("200-0000000003") != comparable("200-0000000004")
