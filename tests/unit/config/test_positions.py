# SPDX-License-Identifier: Apache-2.0
"""Columns of problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodepool.config.problems import Problem
from nodepool.config.validator import Positions

TEXT = """\
base: &base {port: 1}
labels:
  - name: a
  - {name: b, min-ready: x}
again: 1
again: 2
other:
  <<: *base
  alias: *base
"""


@pytest.fixture
def positions(tmp_path: Path) -> Positions:
    file = tmp_path / "f.yaml"
    file.write_text(TEXT, encoding="utf-8")
    return Positions(str(file))


@pytest.mark.parametrize(
    ("path", "line", "column"),
    [
        (("labels",), 2, 1),
        (("labels", 0), 3, 5),
        (("labels", 0, "name"), 3, 5),
        (("labels", 1, "min-ready"), 4, 15),
        # The last one counts.
        (("again",), 6, 1),
        # The nearest place that is there.
        (("labels", 0, "min-ready"), 3, 5),
        (("other", "alias", "port"), 1, 14),
        # Somewhere else than the line says, or nowhere.
        (("labels",), 3, None),
        (("other", "port"), 1, None),
        ((), 1, None),
        (("labels",), None, None),
    ],
)
def test_columns(positions: Positions, path: tuple[object, ...], line: int | None, column: int | None) -> None:
    assert positions.column(Problem("f.yaml", line, "", "", path=path)) == column


def test_known_column_stays(positions: Positions) -> None:
    assert positions.column(Problem("f.yaml", 1, "", "", column=7)) == 7


def test_file_that_is_gone() -> None:
    assert Positions("/nowhere").column(Problem("/nowhere", 1, "a", "", path=("a",))) is None
