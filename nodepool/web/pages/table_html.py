# SPDX-License-Identifier: Apache-2.0
"""HTML of the cells of tables and of texts with links. A page has a thousand of them; a template takes 2 ms longer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from nodepool.web.pages.shown_text import shown_text

if TYPE_CHECKING:
    from nodepool.web.pages.table_view import Cell, CellText


def row_html(row: Sequence[Cell], root: str) -> Markup:
    """The cells of a row. Texts are escaped.

    :param root: the way from the page to the root of the site.
    """
    return Markup("\n".join([_cell(cell, root) for cell in row]))


def parts_html(parts: Iterable[CellText], root: str) -> Markup:
    """Texts, each with its link, with commas between them.

    :param root: see `row_html`.
    """
    return Markup(", ".join([_part(part, root) for part in parts]))


def _cell(cell: Cell, root: str) -> str:
    css = f' class="{escape(cell.css)}"' if cell.css else ""
    return f"<td{css}>{parts_html(cell.parts, root)}</td>"


def _part(part: CellText, root: str) -> str:
    text = escape(shown_text(part.text))
    if part.href is None:
        return text
    href = escape(shown_text(part.href if part.outside else root + part.href))
    return f'<a href="{href}">{text}</a>'
