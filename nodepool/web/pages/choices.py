# SPDX-License-Identifier: Apache-2.0
"""`Choices`: what the address of a list chooses: filters, order, and part of the list."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nodepool.listing import times
from nodepool.listing.nodes import Filter, names_in, states_in
from nodepool.web.pages.frame import PageError
from nodepool.web.pages.templates import address

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams

    from nodepool.listing.table import Column

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
            return times.duration(self.text(name))
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
        """``sort`` and ``direction``, see `nodepool.web.pages.table_view.Head`."""
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
