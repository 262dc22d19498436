# SPDX-License-Identifier: Apache-2.0
"""Pages with one list: filters and order in the address, as many rows as a page has.

First the list, then what its address chooses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nodepool.listing import table as listing_table
from nodepool.listing.nodes import Filter, names_in, states_in
from nodepool.listing.table import Place, Table, cell, in_order, shown
from nodepool.web.pages.frame import Link, Links, Page, PageError, address, table_view

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams
    from starlette.requests import Request

    from nodepool.listing.table import Column
    from nodepool.web.snapshot import RecordKind

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


# `Choices`: what the address of a list chooses: filters, order, and part of the list.

#: Rows of a page, if nobody asks for another number, and at most.
ROWS: Final = 100
MOST_ROWS: Final = 1000
#: Longest value of a parameter.
_MAX_VALUE: Final = 500
#: Names in one parameter.
MAX_NAMES: Final = 50


@dataclass(frozen=True)
class Choices:
    """What is chosen.

    :param given: parameters of the address that are not empty.
    :param page: from 1. ``limit``: rows of a page.
    """

    given: Mapping[str, str]
    page: int
    limit: int

    def text(self, name: str) -> str:
        """A parameter; empty = it is not given."""
        return self.given.get(name, "")

    def filter(self, states: Sequence[str]) -> Filter:
        """What ``state``, ``label``, ``provider``, ``pool``, ``tenant`` and ``older_than`` choose, as the commands do.

        :param states: those that there are.
        :raises PageError: there is no such state, or no such duration.
        """
        age = self.duration("older_than") if self.text("older_than") else None
        try:
            return Filter(
                states_in(self.text("state"), states),
                self._names("label"),
                self._names("provider"),
                self._names("pool"),
                self._names("tenant"),
                age,
            )
        except ValueError as problem:
            raise PageError(400, f"This address cannot be understood: {problem}.") from None

    def duration(self, name: str) -> float:
        """A duration in seconds.

        :raises PageError: it is none.
        """
        try:
            return listing_table.duration(self.text(name))
        except ValueError as problem:
            raise PageError(400, f"This address cannot be understood: {problem}.") from None

    def _names(self, name: str) -> list[str]:
        """Raises ValueError: there are so many that it would take long to look for them."""
        names = names_in(self.text(name))
        if len(names) > MAX_NAMES:
            raise ValueError(f"{name} has more than {MAX_NAMES} names")
        return names

    def order(self, keys: Sequence[str], default: str) -> tuple[str, bool]:
        """Key of the column that ``sort`` asks for, and whether the order is descending.

        :param default: if none is asked for, as in the parameter.
        :raises PageError: no such column can be sorted by.
        """
        asked = self.text("sort") or default
        key = asked.removeprefix("-")
        if key not in keys:
            there_are = ", ".join(keys)
            raise PageError(400, f"This list cannot be sorted by {key!r}. It can be sorted by: {there_are}.")
        return key, asked.startswith("-")

    def head(self, keys: Sequence[str], default: str) -> SortLinks:
        """Links in the heads of a table; arguments as for `order`."""
        key, descending = self.order(keys, default)
        return SortLinks(self, keys, key, descending)

    def address(self, **changes: str | int | None) -> str:
        """The same list with other parameters; the first page of it unless ``page`` is among them."""
        query = {**self.given, "page": None, **changes}
        return address(**query) or "?"

    def part(self, total: int) -> Pages:
        """Which rows of a list the page has."""
        last = max(1, math.ceil(total / self.limit))
        page = min(self.page, last)
        first = (page - 1) * self.limit
        return Pages(
            first,
            min(first + self.limit, total),
            total,
            self.address(page=page - 1) if page > 1 else None,
            self.address(page=page + 1) if page < last else None,
        )


@dataclass(frozen=True)
class SortLinks:
    """Makes the heads of a table lead to the list in another order."""

    choices: Choices
    keys: Sequence[str]
    key: str
    descending: bool

    def __call__(self, column: Column) -> tuple[str | None, str]:
        """``sort`` and ``direction``, see `nodepool.web.pages.frame.Head`."""
        if column.key not in self.keys:
            return None, ""
        if column.key != self.key:
            return self.choices.address(sort=column.key), ""
        other = column.key if self.descending else f"-{column.key}"
        return self.choices.address(sort=other), "descending" if self.descending else "ascending"


@dataclass(frozen=True)
class Pages:
    """Rows from ``first`` to before ``end``, counted from 0, of ``total``; addresses of the pages around it."""

    first: int
    end: int
    total: int
    previous: str | None
    next: str | None


def choices_of(query: QueryParams) -> Choices:
    """What an address chooses; parameters that are not known are of no account.

    :raises PageError: a value is too long, or no such number.
    """
    given = {name: value.strip() for name, value in query.items() if value.strip()}
    if any(len(name) + len(value) > _MAX_VALUE for name, value in given.items()):
        raise PageError(400, f"This address cannot be understood: a parameter is longer than {_MAX_VALUE} characters.")
    page = _number("page", given.pop("page", "1"), 10**9)
    return Choices(given, page, _number("limit", given.get("limit", str(ROWS)), MOST_ROWS))


def _number(name: str, text: str, most: int) -> int:
    if text.isascii() and text.isdigit() and len(text) < 12 and 1 <= int(text) <= most:
        return int(text)
    raise PageError(400, f"This address cannot be understood: {name} must be a number from 1 to {most}.")
