# SPDX-License-Identifier: Apache-2.0
"""A `Table` as a page shows it: texts, colours, and where each value leads to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nodepool.listing.table import Column, Place, Table, cell, shown, without_empty

#: Longest text in a cell; the page of the row has all of it.
MAX_CELL: Final = 300
#: Names of a list in a cell.
MAX_NAMES: Final = 20
#: Names of the library ``rich`` -> classes in the style sheet.
CSS_CLASSES: Final = {"green": "good", "cyan": "busy", "yellow": "waiting", "red": "bad", "dim": "quiet"}

#: Where a value leads to, from the root of the site, or a whole address; None = nowhere. Given the value, and its row.
Link = Callable[[Any, Mapping[str, Any]], str | None]


@dataclass(frozen=True, slots=True)
class CellText:
    """A text in a cell.

    :param href: where it leads to; None = nowhere.
    :param outside: ``href`` is a whole address, of another site.
    """

    text: str
    href: str | None = None
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """:param css: its classes."""

    parts: Sequence[CellText]
    css: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a column.

    :param sort: address of the same page sorted by it; None = it cannot be.
    :param direction: ``ascending`` or ``descending`` when the page is sorted by it; else empty.
    """

    text: str
    css: str = ""
    sort: str | None = None
    direction: str = ""


@dataclass(frozen=True)
class TableView:
    """:param caption: what its rows are, for people who do not see the page."""

    caption: str
    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]


def table_view(
    caption: str,
    table: Table,
    links: Mapping[str, Link] | None = None,
    head: Callable[[Column], tuple[str | None, str]] | None = None,
) -> TableView:
    """What a template shows of a table.

    :param links: key of a column -> where its values lead to.
    :param head: ``sort`` and ``direction`` of a column, see `Head`.
    """
    keys = [column.key for column in table.columns]
    wanted = [dict(zip(keys, row, strict=True)) for row in table.rows]
    table = without_empty(shown(table, Place.TERMINAL))
    heads = [
        Head(column.header, _column_class(column), *((None, "") if head is None else head(column)))
        for column in table.columns
    ]
    columns = [(column, _column_class(column), (links or {}).get(column.key)) for column in table.columns]
    rows = [
        [_cell(*column, value, row) for column, value in zip(columns, values, strict=True)]
        for row, values in zip(wanted, table.rows, strict=True)
    ]
    return TableView(caption, heads, rows)


def _cell(column: Column, css: str, link: Link | None, value: Any, row: Mapping[str, Any]) -> Cell:
    colour = CSS_CLASSES.get(column.style(value), "")
    if colour:
        css = f"{css} state {colour}".strip()
    if isinstance(value, list) and link is not None:
        parts = [_linked(_cut(str(one)), link(one, row)) for one in value[:MAX_NAMES]]
        if len(value) > MAX_NAMES:
            parts.append(CellText(f"{len(value) - MAX_NAMES} more"))
        return Cell(parts, css)
    text = _cut(cell(column, value))
    return Cell([_linked(text, None if link is None or value is None else link(value, row))] if text else [], css)


def _linked(text: str, href: str | None) -> CellText:
    return CellText(text, href, href is not None and href.startswith(("http://", "https://")))


def _column_class(column: Column) -> str:
    """Columns that people can do without are hidden where there is no room."""
    return f"p{min(column.priority, 8)}" if column.priority else ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}..."
