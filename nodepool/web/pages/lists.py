# SPDX-License-Identifier: Apache-2.0
"""Pages with one list: filters and order in the address, as many rows as a page has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nodepool.listing.table import Place, Table, cell, in_order, shown
from nodepool.web.pages.choices import Choices, choices_of
from nodepool.web.pages.frame import Page
from nodepool.web.pages.links import Links
from nodepool.web.pages.table_view import Link, table_view

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.web.changed_records import RecordKind

#: Names that a field proposes.
MOST_PROPOSALS: Final = 200
_T = TypeVar("_T")


@dataclass(frozen=True)
class FilterField:
    """A field of the form above a list.

    :param name: of the parameter. ``label``: what people read.
    :param value: what is chosen. ``hint``: stands in an empty field.
    :param options: the only values; empty = any text.
    :param proposals: values that there are, of a field for any text.
    """

    name: str
    label: str
    value: str
    hint: str = ""
    options: Sequence[str] = ()
    proposals: Sequence[str] = ()


@dataclass(frozen=True)
class ListSubject:
    """What a list is about.

    :param kinds: it is asked for again when records of these change.
    :param links: key of a column -> where its values lead to.
    :param empty: what the page says when there is nothing.
    """

    title: str
    kinds: Sequence[RecordKind]
    links: Callable[[Links], Mapping[str, Link]]
    empty: str


def list_of_table(
    request: Request, subject: ListSubject, table: Table, links: Links, more: Sequence[FilterField] = ()
) -> Page:
    """The page of a table that is small enough to be made as a whole. ``q`` chooses the rows that have a text.

    :param more: fields beside ``q``, which have chosen the rows already.
    """
    choices = choices_of(request.query_params)
    wanted = choices.text("q").casefold()
    if wanted:
        people = shown(table, Place.TERMINAL)
        rows = [
            row for row, texts in zip(table.rows, people.rows, strict=True) if wanted in _text(people, texts).casefold()
        ]
        table = replace(table, rows=rows)
    keys = [column.key for column in table.columns]
    if choices.text("sort"):
        choices.order(keys, keys[0])
        table = in_order(table, choices.text("sort"))
    fields = [*more, FilterField("q", "Text", choices.text("q"), "in any column")]
    return make_list(
        subject, choices, len(table.rows), lambda first, end: _rows(table, first, end), fields, keys, "", links
    )


def make_list(
    subject: ListSubject,
    choices: Choices,
    total: int,
    make_table: Callable[[int, int], Table],
    fields: Sequence[FilterField],
    sorts: Sequence[str],
    default: str,
    links: Links,
) -> Page:
    """A page with a part of a list.

    :param total: rows of the list. ``make_table``: makes those from a number to before another, counted from 0.
    :param sorts: keys of the columns by which it can be sorted. ``default``: see `Choices.order`; empty = it has an
        order of its own.
    """
    part = choices.part(total)
    head = choices.head(sorts, default) if choices.text("sort") or default else choices.head(["", *sorts], "")
    values = {
        "fields": fields,
        "hidden": {name: choices.text(name) for name in ("sort", "limit") if choices.text(name)},
        "chosen": any(field.value for field in fields),
        "all": choices.address(**{field.name: None for field in fields}),
        "part": part,
        "empty": subject.empty,
        "view": table_view(subject.title, make_table(part.first, part.end), subject.links(links), head),
    }
    return Page("list.html", subject.title, values, subject.kinds)


def first_texts(page: Page) -> list[str]:
    """The texts in the first column of the rows that a page with a list shows."""
    return ["".join(part.text for part in row[0].parts) for row in page.values["view"].rows]


def sorted_by(records: Iterable[_T], key: Callable[[_T], Any], *, descending: bool) -> list[_T]:
    """Records by a value that can be compared; those without one (None) come last."""
    found = [(key(record), record) for record in records]
    there = [pair for pair in found if pair[0] is not None]
    there.sort(key=lambda pair: pair[0], reverse=descending)
    return [record for _, record in there] + [record for value, record in found if value is None]


def filter_fields(
    choices: Choices, states: Sequence[str], proposals: Mapping[str, Iterable[str]], names: Sequence[str]
) -> list[FilterField]:
    """Fields of `Choices.filter`.

    :param proposals: name of a parameter -> values that there are.
    :param names: which of ``label``, ``provider``, ``pool`` and ``tenant`` there are beside ``state`` and age.
    """
    state = choices.text("state")
    options = [*states, *([state] if state and state not in states else [])]
    fields = [FilterField("state", "State", state, options=options)]
    for name in names:
        known = sorted(set(proposals.get(name, ())))[:MOST_PROPOSALS]
        fields.append(FilterField(name, name.capitalize(), choices.text(name), "e.g. gpu-*, a,b", proposals=known))
    return [*fields, FilterField("older_than", "Older than", choices.text("older_than"), "e.g. 15m, 1h30m")]


def _rows(table: Table, first: int, end: int) -> Table:
    return replace(table, rows=table.rows[first:end])


def _text(table: Table, row: Sequence[Any]) -> str:
    return " ".join(cell(column, value) for column, value in zip(table.columns, row, strict=True))
