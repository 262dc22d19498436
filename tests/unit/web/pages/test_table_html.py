# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from nodepool.web.pages.frame import MAX_TEXT, Cell, CellText, parts_html, row_html, shown_text


def test_row() -> None:
    row = [Cell([CellText("a", "nodes/a"), CellText("b")], "state good"), Cell([])]
    assert row_html(row, "../") == (
        '<td class="state good"><a href="../nodes/a">a</a>, b</td>\n<td></td>'  # no class where there is none
    )


def test_address_of_another_site() -> None:
    assert parts_html([CellText("x", "https://zuul/t/1", outside=True)], "../") == '<a href="https://zuul/t/1">x</a>'


def test_markup_is_escaped() -> None:
    """WP-43: whatever other programs have put into names."""
    evil = '"><script>alert(1)</script>&'
    html = row_html([Cell([CellText(evil, evil)], evil)], "./")
    assert "<script" not in html
    assert '""' not in html
    assert "&amp;" in html


def test_characters_that_cannot_be_seen() -> None:
    """WP-43"""
    assert shown_text("a\x1b[31mb\nc\u202ed") == "a [31mb\nc d"
    assert shown_text("x" * MAX_TEXT) == "x" * MAX_TEXT
    assert shown_text("x" * (MAX_TEXT + 1)) == "x" * MAX_TEXT + "..."
    assert parts_html([CellText("a\x00b")], "") == "a b"
