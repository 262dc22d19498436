# SPDX-License-Identifier: Apache-2.0
"""What the address of a list, of a page or of the API, asks for: filters, order, part, fields (WP-21 to WP-23, WP-45).

First the parameters, then a parsed query, then an order and the parts of a long list, last tables of lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from nodepool.listing import table
from nodepool.listing.nodes import ALLOCATED, Filter, host_table, names_in, states_in
from nodepool.listing.pools import provider_table, tenant_limits, tenant_table
from nodepool.listing.records import launcher_table
from nodepool.listing.table import Table
from nodepool.model import states
from nodepool.model.config_keys import did_you_mean
from nodepool.plan.attention import registered_launchers
from nodepool.plan.pool_summary import summarize
from nodepool.web.answers import WebProblem

if TYPE_CHECKING:
    from nodepool.web.snapshot import WebSnapshot

#: Rows of an answer, if no other number is asked for, and at most.
ROWS: Final = 100
MOST_ROWS: Final = 1000
#: Longest query, longest value of a parameter but a cursor, and most names in one.
MAX_QUERY: Final = 8000
MAX_VALUE: Final = 500
MAX_NAMES: Final = 50
_NUMBER: Final = re.compile(r"\d{1,12}(?:\.\d{1,6})?")


@dataclass(frozen=True, eq=False)
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
SORT: Final = Parameter("sort", "Key of a field to sort by; with `-` before it in descending order.")
_LIMITS: Final = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": ROWS}
LIMIT: Final = Parameter("limit", "At most so many items.", _LIMITS)
FIELDS: Final = Parameter("fields", "Only these fields of each item, divided by commas.")
NODE_STATE: Final = state((*states.NODE_STATES, ALLOCATED))
REQUEST_STATE: Final = state(states.REQUEST_STATES)


@dataclass(frozen=True)
class Query:
    """A parsed query. Methods raise WebProblem: a value cannot be understood.

    :param given: parameters that are not empty.
    :param path: names and ids in the path.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A parameter; empty = it is not given."""
        return self.given.get(name, "")

    def names(self, parameter: Parameter) -> list[str]:
        """Names or patterns, divided by commas; empty = not given."""
        text = self.text(parameter.name)
        try:
            names = states_in(text, parameter.values) if parameter.values else names_in(text)
        except ValueError as error:
            raise wrong(parameter.name, error) from None
        if len(names) > MAX_NAMES:
            raise wrong(parameter.name, f"more than {MAX_NAMES} names")
        return names

    def filter(self, states: Parameter) -> Filter:
        """Of nodes or requests, as the commands have it."""
        age = self.duration(OLDER_THAN.name) if self.text(OLDER_THAN.name) else None
        label, provider, pool, tenant = (self.names(one) for one in (LABEL, PROVIDER, POOL, TENANT))
        return Filter(self.names(states), label, provider, pool, tenant, age)

    def duration(self, name: str) -> float:
        """A duration that is given, in seconds."""
        try:
            return table.duration(self.text(name))
        except ValueError as error:
            raise wrong(name, error) from None

    def since(self, now: float) -> float:
        """The moment of ``since``, in seconds since the epoch; 0 = it is not given."""
        text = self.given.get(SINCE.name, "0")
        return float(text) if _NUMBER.fullmatch(text) else now - self.duration(SINCE.name)

    def number(self, name: str, default: int, most: int) -> int:
        """A number from 1."""
        text = self.given.get(name, str(default))
        if not (text.isascii() and text.isdecimal() and len(text) < 12 and 1 <= int(text) <= most):
            raise wrong(name, f"{text!r} is no number from 1 to {most}")
        return int(text)

    @property
    def limit(self) -> int:
        """Rows."""
        return self.number(LIMIT.name, ROWS, MOST_ROWS)

    @property
    def fields(self) -> list[str]:
        """Keys, each once; empty = all."""
        return list(dict.fromkeys(names_in(self.text(FIELDS.name))))

    def order(self, keys: Iterable[str], default: str) -> tuple[str, bool]:
        """Key of the field to sort by, and whether the order is descending.

        :param keys: those that there are.
        :param default: if none is asked for, as in the parameter.
        """
        asked = self.text(SORT.name) or default
        key = asked.removeprefix("-")
        if key not in keys:
            there_are = f"there are: {', '.join(keys)}"
            raise WebProblem(400, f"This list cannot be sorted by {key!r}{did_you_mean(key, keys)}; {there_are}.")
        return key, asked.startswith("-")


def parse(query: bytes, path: Mapping[str, str], allowed: Sequence[Parameter] | None = None) -> Query:
    """Read the query of a request.

    :param allowed: the only parameters, each once; None = others, and earlier ones of a name, are of no account.
    :raises WebProblem: a parameter is not allowed, there twice, or too long.
    """
    if len(query) > MAX_QUERY:
        raise WebProblem(400, f"The query is longer than {MAX_QUERY} characters.")
    longest = {parameter.name: parameter.schema.get("maxLength", MAX_VALUE) for parameter in allowed or ()}
    given: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if allowed is not None and name not in longest:
            there_are = f"there are: {', '.join(longest)}" if longest else "there is none"
            raise WebProblem(400, f"There is no parameter {name[:MAX_VALUE]!r} here; {there_are}.")
        if allowed is not None and name in given:
            raise wrong(name, "it is there twice; several values are divided by commas")
        if len(value) > longest.get(name, MAX_VALUE):
            raise wrong(name[:MAX_VALUE], f"it is longer than {longest.get(name, MAX_VALUE)} characters")
        given[name] = value.strip()
    return Query({name: value for name, value in given.items() if value}, path)


def wrong(name: str, why: object) -> WebProblem:
    return WebProblem(400, f"The parameter {name!r} cannot be understood: {why}.")


# Tables that a page and the API share.


def all_providers(snapshot: WebSnapshot) -> Table:
    """As ``nodepool providers``."""
    return provider_table(summarize(snapshot.observed.statuses), snapshot.launchers, snapshot.observed.now)


def all_hosts(snapshot: WebSnapshot) -> Table:
    """As ``nodepool hosts``."""
    return host_table(summarize(snapshot.observed.statuses), snapshot.observed.now)


def all_launchers(snapshot: WebSnapshot) -> Table:
    """As ``nodepool launchers``."""
    seen = snapshot.observed
    return launcher_table(snapshot.launchers, registered_launchers(seen.registered), seen.now)


def all_tenants(snapshot: WebSnapshot) -> Table:
    """As ``nodepool tenants``."""
    seen = snapshot.observed
    return tenant_table(tenant_limits(snapshot.launchers), seen.nodes.values(), seen.requests.values())
