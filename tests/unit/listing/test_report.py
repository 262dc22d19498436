# SPDX-License-Identifier: Apache-2.0
"""nodepool.listing.table: paragraphs and listings, and when a program gets them again."""

from __future__ import annotations

import json

import pytest

from nodepool.listing.table import BLANK, ChangedReports, Column, Paragraph, Report, Table, as_text, render

TABLE = Table((Column("Pool", "pool"),), [["a/b"]])


def report(seconds: int, problems: int) -> Report:
    return Report([Paragraph([("down ", "red"), (f"for {seconds} s", "")]), BLANK, TABLE], {"problems": problems})


def test_text() -> None:
    assert as_text(report(5, 1)) == f"down for 5 s\n\n{render(TABLE)}"


@pytest.mark.parametrize("form", ["table", "json"])
def test_it_is_told_again_when_it_has_changed(form: str) -> None:
    """OV-6: an age is no change."""
    changed = ChangedReports(form)
    texts = [changed.text(found) for found in (report(1, 1), report(2, 1), report(3, 2))]
    if form == "json":
        assert [json.loads(text or "null") for text in texts] == [{"problems": 1}, None, {"problems": 2}]
        assert all("\n" not in text for text in texts)
    else:
        assert texts == [as_text(report(1, 1)), "", f"\n{as_text(report(3, 2))}"]
