# SPDX-License-Identifier: Apache-2.0
"""The table of the documentation, and the one that a run prints."""

from __future__ import annotations

from tests.functional.released_drivers.released import driver_names
from tests.functional.released_drivers.rows import ROWS
from tests.functional.released_drivers.table import documented, results
from tests.support.launcher import ROOT


def test_each_released_driver_has_a_row() -> None:
    assert set(driver_names()) <= {row.driver for row in ROWS}


def test_documentation_has_the_table() -> None:
    page = (ROOT / "doc" / "source" / "drivers" / "released" / "index.rst").read_text(encoding="utf-8")
    assert documented(ROWS) in page, f"the table is:\n\n{documented(ROWS)}"


def test_printed_table() -> None:
    lines = results({"launch[aws]": "passed", "delete[aws]": "failed", "start[static]": "skipped", "other": "passed"})
    assert [line.split() for line in lines[1:]] == [
        ["aws", "-", "-", "passed", "failed", "-"],
        ["static", "-", "skipped", "-", "-", "-"],
    ]
