# SPDX-License-Identifier: Apache-2.0
"""A long list in parts: each part begins behind the last record of the one before, whatever came or went meanwhile."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from nodepool.listing.table import sort_key

T = TypeVar("T")

#: Characters of a text, and of an identity, that count: a cursor has both.
_MAX_TEXT: Final = 200
#: Longest cursor that is read.
MAX_CURSOR: Final = 4000

#: Place of a record in the order: is there no value, and the value as `sort_key` has it.
_Rank = tuple[bool, tuple[bool, float, str]]
_NOTHING: Final = (True, (True, 0.0, ""))


class BadCursor(ValueError):
    """It was not made by `part_of`."""


@dataclass(frozen=True)
class Order(Generic[T]):
    """In which order records are; those without a value (None) come last.

    :param value: what they are sorted by: a number, a text, a list, or None.
    :param identity: distinguishes records, and is the order of those with the same value.
    """

    value: Callable[[T], Any]
    identity: Callable[[T], str]
    descending: bool = False

    def rank(self, record: T) -> _Rank:
        value = self.value(record)
        if value is None:
            return _NOTHING
        kind, number, text = sort_key(value)
        return (False, (kind, number, text[:_MAX_TEXT]))


@dataclass(frozen=True)
class ListPart(Generic[T]):
    """:param cursor: for the next part; None = it is the last one."""

    records: list[T]
    cursor: str | None


def part_of(records: Iterable[T], order: Order[T], limit: int, cursor: str | None) -> ListPart[T]:
    """The first records in an order, or those behind a cursor.

    :param limit: at most so many.
    :raises BadCursor: it is none.
    """
    ranked = [(order.rank(record), order.identity(record)[:_MAX_TEXT], record) for record in records]
    if cursor is not None:
        begin = _read(cursor)
        ranked = [entry for entry in ranked if _is_behind(entry[:2], begin, descending=order.descending)]
    ranked.sort(key=lambda entry: entry[1])
    ranked.sort(key=lambda entry: entry[0], reverse=order.descending)
    if order.descending:
        # Those without a value were the first ones.
        ranked.sort(key=lambda entry: entry[0][0])
    some = ranked[:limit]
    more = len(ranked) > limit and bool(some)
    return ListPart([record for _, _, record in some], _cursor(*some[-1][:2]) if more else None)


def _is_behind(entry: tuple[_Rank, str], begin: tuple[_Rank, str], *, descending: bool) -> bool:
    (rank, identity), (first, first_identity) = entry, begin
    if rank == first:
        return identity > first_identity
    if rank[0] != first[0]:
        return rank[0]
    return (rank < first) if descending else (rank > first)


def _cursor(rank: _Rank, identity: str) -> str:
    nothing, (kind, number, text) = rank
    data = json.dumps([nothing, kind, number, text, identity], separators=(",", ":"))
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def _read(cursor: str) -> tuple[_Rank, str]:
    if len(cursor) > MAX_CURSOR:
        raise BadCursor("it is too long")
    try:
        data = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        raise BadCursor("it cannot be read") from None
    match data:
        case [bool(nothing), bool(kind), int() | float() as number, str(text), str(identity)]:
            return (nothing, (kind, number, text)), identity
        case _:
            raise BadCursor("it cannot be read")
