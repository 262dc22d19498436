# SPDX-License-Identifier: Apache-2.0
"""Pages with one list: filters and order in the address, as many rows as a page has.

First the list of a small table, then that of records of which there may be thousands, then what both have in common.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.table import Place, Table, cell, in_order, shown
from nodepool.web.pages.frame import Link, Links, Page, address, table_view
from nodepool.web.query import LABEL, OLDER_THAN, PROVIDER, Order, Parameter, Query, parse

if TYPE_CHECKING:
    from starlette.requests import Request

    from nodepool.listing.nodes import Filter
    from nodepool.listing.table import Column
    from nodepool.plan.observed import Observed
    from nodepool.web.snapshot import RecordKind, WebSnapshot

#: Names that a field proposes.
MOST_PROPOSALS: Final = 200


@dataclass(frozen=True)
class ListSubject:
    """What a list is about.

    :param kinds: it is asked for again when records of these change.
    :param empty: what the page says when there is nothing.
    """

    title: str
    kinds: Sequence[RecordKind]
    empty: str


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


def query_of(request: Request) -> Query:
    """What an address chooses; parameters that are not known are of no account."""
    return parse(request.scope["query_string"], request.path_params)


def list_of_table(
    request: Request, subject: ListSubject, table: Table, links: Links, more: Sequence[FilterField] = ()
) -> Page:
    """The page of a table that is small enough to be made as a whole. ``q`` chooses the rows that have a text.

    :param more: fields beside ``q``, which have chosen the rows already.
    """
    query = query_of(request)
    wanted = query.text("q").casefold()
    if wanted:
        people = shown(table, Place.TERMINAL)
        texts = (" ".join(map(cell, people.columns, row)).casefold() for row in people.rows)
        table = replace(table, rows=[row for row, text in zip(table.rows, texts, strict=True) if wanted in text])
    keys = [column.key for column in table.columns]
    if query.text("sort"):
        query.order(keys, "")
        table = in_order(table, query.text("sort"))
    fields = [*more, FilterField("q", "Text", query.text("q"), "in any column")]

    def part(first: int, end: int) -> Table:
        return replace(table, rows=table.rows[first:end])

    return _list(query, subject, len(table.rows), part, fields, keys, "", links)


@dataclass(frozen=True)
class RecordList:
    """How nodes or requests are listed.

    :param state: filter with their states. ``filters``: those beside it.
    :param orders: key of a column -> what is sorted by. ``id``, the first, is the order in which ``records`` has them.
    :param wanted: does a filter choose one, at a time in seconds since the epoch?
    :param table: makes rows of some.
    :param link: where an id leads to.
    """

    subject: ListSubject
    state: Parameter
    filters: Sequence[Parameter]
    orders: Mapping[str, Callable[[Any], Any]]
    records: Callable[[Observed], Iterable[Any]]
    wanted: Callable[[Filter, Any, float], bool]
    table: Callable[[Sequence[Any], Observed], Table]
    link: Callable[[Links, Any], str | None]


def list_of_records(kind: RecordList, request: Request, snapshot: WebSnapshot) -> Page:
    """The page of a list of which only the rows that are shown are made."""
    seen, query, links = snapshot.observed, query_of(request), Links(snapshot)
    wanted = query.filter(kind.state)
    key, descending = query.order(kind.orders, "id")
    found = list(kind.records(seen))
    if not wanted.everything:
        found = [record for record in found if kind.wanted(wanted, record, seen.now)]
    if key != "id":
        order = Order(kind.orders[key], lambda record: str(record.key), descending)
        found = [record for _, record in order.ranked(found)]
    elif descending:
        found.reverse()
    state = query.text("state")
    # Several at a time are chosen by the address alone.
    options = kind.state.values if state in ("", *kind.state.values) else [*kind.state.values, state]
    fields = [FilterField("state", "State", state, options=options)]
    for name in (parameter.name for parameter in kind.filters):
        known = {LABEL.name: seen.labels, PROVIDER.name: seen.providers}.get(name, ())
        proposals = sorted(known)[:MOST_PROPOSALS]
        fields.append(FilterField(name, name.capitalize(), query.text(name), "e.g. gpu-*, a,b", proposals=proposals))
    fields.append(FilterField(OLDER_THAN.name, "Older than", query.text(OLDER_THAN.name), "e.g. 15m, 1h30m"))

    def table(first: int, end: int) -> Table:
        return kind.table(found[first:end], seen)

    def link(value: Any) -> str | None:
        return kind.link(links, value)

    return _list(query, kind.subject, len(found), table, fields, list(kind.orders), "id", links, link)


def _list(
    query: Query,
    subject: ListSubject,
    total: int,
    make_table: Callable[[int, int], Table],
    fields: Sequence[FilterField],
    sorts: Sequence[str],
    default: str,
    links: Links,
    id_link: Link | None = None,
) -> Page:
    """A page with a part of a list.

    :param total: rows of the list. ``make_table``: makes those from a number to before another, counted from 0.
    :param sorts: keys of the columns by which it can be sorted.
    :param default: key that it is sorted by if none is asked for; empty = it has an order of its own.
    """
    last = max(1, math.ceil(total / query.limit))
    page = min(query.number("page", 1, 10**9), last)
    first, end = (page - 1) * query.limit, min(page * query.limit, total)
    key, descending = query.order(["", *sorts], default)
    given: dict[str, str | int | None] = {name: value for name, value in query.given.items() if name != "page"}

    def link(**changes: str | int | None) -> str:
        """The same list with other parameters; the first page of it unless ``page`` is among them."""
        return address(**{**given, **changes}) or "?"

    def head(column: Column) -> tuple[str | None, str]:
        if column.key not in sorts:
            return None, ""
        if column.key != key:
            return link(sort=column.key), ""
        other = column.key if descending else f"-{column.key}"
        return link(sort=other), "descending" if descending else "ascending"

    values = {
        "fields": fields,
        "hidden": {name: query.text(name) for name in ("sort", "limit") if query.text(name)},
        "chosen": any(field.value for field in fields),
        "all": link(**dict.fromkeys((field.name for field in fields), None)),
        "first": first,
        "end": end,
        "total": total,
        "previous": link(page=page - 1) if page > 1 else None,
        "next": link(page=page + 1) if page < last else None,
        "empty": subject.empty,
        "view": table_view(subject.title, make_table(first, end), links, head, id=id_link),
    }
    return Page("list.html", subject.title, values, subject.kinds)


def first_texts(page: Page) -> list[str]:
    """The texts in the first column of the rows that a page with a list shows."""
    return ["".join(part.text for part in row[0].parts) for row in page.values["view"].rows]
