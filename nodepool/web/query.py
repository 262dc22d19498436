# SPDX-License-Identifier: Apache-2.0
"""What the query of a request of the API asks for: filters, order, part and fields (WP-22, WP-23)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

from nodepool.listing import table
from nodepool.listing.nodes import Filter, names_in, states_in
from nodepool.listing.paging import MAX_CURSOR
from nodepool.web.answers import ApiProblem

#: Rows of an answer, if nobody asks for another number, and at most.
ROWS: Final = 100
MOST_ROWS: Final = 1000
#: Longest query, longest value of a parameter but a cursor, and most names in one.
MAX_QUERY: Final = 8000
MAX_VALUE: Final = 500
MAX_NAMES: Final = 50
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,6})?")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a query, as it is parsed and as OpenAPI describes it.

    :param values: those that there are; empty = any.
    """

    name: str
    description: str
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string", "maxLength": MAX_VALUE})
    values: Sequence[str] = ()


def state(values: Sequence[str]) -> Parameter:
    """``state``, of these states; empty = any."""
    there_are = f": {', '.join(values)}" if values else ""
    return Parameter("state", f"In one of these states, divided by commas{there_are}.", values=values)


LABEL: Final = Parameter("label", "With one of these labels: names or patterns such as `gpu-*`, divided by commas.")
PROVIDER: Final = Parameter("provider", "Of one of these providers: names or patterns, divided by commas.")
POOL: Final = Parameter("pool", "Of one of these pools: `POOL` or `PROVIDER/POOL`, or patterns, divided by commas.")
TENANT: Final = Parameter("tenant", "Of one of these tenants: names or patterns, divided by commas.")
OLDER_THAN: Final = Parameter(
    "older_than", "Nodes that are in their state, requests that wait for longer, e.g. `90s`, `15m`, `1h30m`."
)
SINCE: Final = Parameter(
    "since", "Not older than this moment in seconds since the epoch, or than a duration such as `15m` or `2d`."
)
SUBJECT: Final = Parameter(
    "subject", "About this: a kind, a name or an id, e.g. `cloud-1`, `node` or `200-0000000001`."
)
SORT: Final = Parameter("sort", "Key of a field to sort by; with `-` before it in descending order.")
LIMIT: Final = Parameter(
    "limit",
    "At most so many items.",
    {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": ROWS},
)
CURSOR: Final = Parameter(
    "cursor", "`next` of the answer before: the items behind that.", {"type": "string", "maxLength": MAX_CURSOR}
)
FIELDS: Final = Parameter("fields", "Only these fields of each item, divided by commas.")
#: What every list has.
OF_LISTS: Final = (SORT, LIMIT, CURSOR, FIELDS)


@dataclass(frozen=True)
class Query:
    """A parsed query.

    :param given: parameters that are not empty, all of them allowed.
    :param path: names and ids in the path.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)

    def names(self, parameter: Parameter) -> list[str]:
        """Names or patterns, divided by commas; empty = not given. Raises ApiProblem."""
        text = self.given.get(parameter.name, "")
        try:
            names = states_in(text, parameter.values) if parameter.values else names_in(text)
        except ValueError as error:
            raise _wrong(parameter.name, str(error)) from None
        if len(names) > MAX_NAMES:
            raise _wrong(parameter.name, f"more than {MAX_NAMES} names")
        return names

    def filter(self, states: Parameter) -> Filter:
        """Of nodes or requests. Raises ApiProblem."""
        age = self.given.get(OLDER_THAN.name)
        return Filter(
            self.names(states),
            self.names(LABEL),
            self.names(PROVIDER),
            self.names(POOL),
            self.names(TENANT),
            None if age is None else _duration(OLDER_THAN.name, age),
        )

    def since(self, now: float) -> float:
        """The moment of ``since``, in seconds since the epoch; 0 = it is not given. Raises ApiProblem."""
        text = self.given.get(SINCE.name, "0")
        if _NUMBER.fullmatch(text):
            return float(text)
        return now - _duration(SINCE.name, text)

    @property
    def limit(self) -> int:
        """Raises ApiProblem."""
        text = self.given.get(LIMIT.name, str(ROWS))
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= MOST_ROWS):
            raise _wrong(LIMIT.name, f"{text!r} is no number from 1 to {MOST_ROWS}")
        return int(text)

    @property
    def fields(self) -> list[str]:
        """Keys, each once; empty = all."""
        return list(dict.fromkeys(names_in(self.given.get(FIELDS.name, ""))))


def parse(query: bytes, allowed: Sequence[Parameter], path: Mapping[str, str]) -> Query:
    """Read the query of a request.

    :raises ApiProblem: a parameter is not allowed, there twice, or too long.
    """
    if len(query) > MAX_QUERY:
        raise ApiProblem(400, f"The query is longer than {MAX_QUERY} characters.")
    longest = {parameter.name: parameter.schema.get("maxLength", MAX_VALUE) for parameter in allowed}
    given: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in longest:
            there_are = f"there are: {', '.join(longest)}" if longest else "there is none"
            raise ApiProblem(400, f"There is no parameter {name[:MAX_VALUE]!r} here; {there_are}.")
        if name in given:
            raise _wrong(name, "it is there twice; several values are divided by commas")
        if len(value) > longest[name]:
            raise _wrong(name, f"it is longer than {longest[name]} characters")
        given[name] = value.strip()
    return Query({name: value for name, value in given.items() if value}, path)


def _duration(name: str, text: str) -> float:
    try:
        return table.duration(text)
    except ValueError as error:
        raise _wrong(name, str(error)) from None


def _wrong(name: str, text: str) -> ApiProblem:
    return ApiProblem(400, f"The parameter {name!r} cannot be understood: {text}.")
