# SPDX-License-Identifier: Apache-2.0
"""A path of the API, what it answers, and how OpenAPI describes it (`ApiResource`); then JSON schemas of answers."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from nodepool.listing.nodes import matches
from nodepool.listing.table import Table, UnknownColumn, selected
from nodepool.plan.explained import Explained
from nodepool.web.answers import WebProblem
from nodepool.web.query import CURSOR, FIELDS, OF_LISTS, PROVIDER, Order, Parameter, Query, part_of

if TYPE_CHECKING:
    from nodepool.plan.observed import Observed
    from nodepool.web.snapshot import WebSnapshot


@dataclass(frozen=True)
class ApiResource:
    """One path.

    :param path: below ``/api/v1``; ``{name}`` is the id or name of a record, and may have ``/`` in it at the end.
    :param answer: makes the JSON object from the snapshot and the query, beside `OF_EVERY_ANSWER`. Raises WebProblem.
    :param schema: of that object.
    :param parameters: of the query.
    """

    path: str
    summary: str
    answer: Callable[[WebSnapshot, Query], Mapping[str, Any]]
    schema: Mapping[str, Any]
    parameters: Sequence[Parameter] = ()

    @property
    def has_name(self) -> bool:
        """Does the path name a record?"""
        return "{name" in self.path


@dataclass(frozen=True)
class Records:
    """Records of a list, of which a part is shown.

    :param orders: key of a field -> what records are sorted by. ``default``: the key, if none is asked for.
    :param table: makes rows of some of them; called for those that are shown.
    """

    records: Sequence[Any]
    orders: Mapping[str, Callable[[Any], Any]]
    identity: Callable[[Any], str]
    default: str
    table: Callable[[Sequence[Any]], Table]


def list_resource(
    path: str,
    summary: str,
    look: Callable[[WebSnapshot, Query], Records],
    properties: Mapping[str, Any],
    parameters: Sequence[Parameter] = (),
) -> ApiResource:
    """A list that can be sorted, shown in parts, and with some fields.

    :param look: finds the records that a query wants.
    :param properties: of an item, by key.
    """

    def answer(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
        found = look(snapshot, query)
        key, descending = query.order(found.orders, found.default)
        order = Order(found.orders[key], found.identity, descending)
        some, cursor = part_of(found.records, order, query.limit, query.text(CURSOR.name))
        table = found.table(some)
        if query.fields:
            try:
                table = selected(table, query.fields)
            except UnknownColumn as error:
                raise WebProblem(400, f"The parameter {FIELDS.name!r} cannot be understood: {error}.") from None
        return {"total": len(found.records), "next": cursor, "items": objects_of(table)}

    return ApiResource(path, summary, answer, page(properties), (*parameters, *OF_LISTS))


def table_resource(
    path: str,
    summary: str,
    make: Callable[[WebSnapshot], Table],
    identity: Sequence[str],
    properties: Mapping[str, Any],
    filters: Mapping[Parameter, str],
) -> ApiResource:
    """A list of which the table is small enough to be made as a whole.

    :param identity: keys of the columns that distinguish rows; by default it is sorted by the first.
    :param filters: parameter -> key of the column that it looks at. Providers are those of the pools in the column.
    """

    def look(snapshot: WebSnapshot, query: Query) -> Records:
        table = make(snapshot)
        keys, rows = [column.key for column in table.columns], table.rows
        for parameter, key in filters.items():
            number = keys.index(key)
            if wanted := query.names(parameter):
                rows = [row for row in rows if matches(wanted, _compared(parameter, row[number], snapshot.observed))]
        return of_table(replace(table, rows=rows), identity)

    return list_resource(path, summary, look, properties, tuple(filters))


def _compared(parameter: Parameter, value: Any, seen: Observed) -> list[str]:
    """What a filter looks at in a cell."""
    found = value if isinstance(value, list) else [value]
    if parameter is PROVIDER:
        return [seen.provider_of(pool) for pool in found]
    # Of a state with the number of launchers behind it, the state.
    return [text.partition(" (")[0] for text in found] if parameter.name == "state" else found


def of_table(table: Table, identity: Sequence[str]) -> Records:
    """The rows of a table. Arguments as for `table_resource`."""
    orders = {column.key: itemgetter(number) for number, column in enumerate(table.columns)}

    def name(row: Sequence[Any]) -> str:
        return "\0".join(str(orders[key](row)) for key in identity)

    return Records(table.rows, orders, name, identity[0], lambda rows: replace(table, rows=rows))


def objects_of(table: Table) -> list[dict[str, Any]]:
    """Each row as an object."""
    keys = [column.key for column in table.columns]
    return [dict(zip(keys, row, strict=True)) for row in table.rows]


# JSON schemas (2020-12, as OpenAPI 3.1 has them) of what the API answers.

Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string"}
#: Names of types in `properties`.
_TYPES: Final[Mapping[str, Schema]] = {
    "text": TEXT,
    "texts": {"type": "array", "items": TEXT},
    "count": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "moment": {"type": "number", "description": "seconds since the epoch"},
    "seconds": {"type": "number", "description": "seconds, as of `now`"},
    #: What other programs stored.
    "any": {},
}


def properties(types: str, **descriptions: str) -> dict[str, Any]:
    """The properties of an object, in their order.

    :param types: ``NAME:TYPE`` of each, with `_TYPES`; ``?`` behind the type: or null.
    :param descriptions: of some of them.
    """
    found: dict[str, Any] = {}
    for name, _, kind in (one.partition(":") for one in types.split()):
        schema = _TYPES[kind.rstrip("?")]
        found[name] = {**schema, "type": [schema["type"], "null"]} if kind.endswith("?") else dict(schema)
        if name in descriptions:
            found[name]["description"] = descriptions[name]
    return found


#: What every answer has beside its content.
OF_EVERY_ANSWER: Final = properties(
    "now:number complete:flag",
    now="when the answer was true, in seconds since the epoch; ages are as of then",
    complete="false: not all that ZooKeeper has is known, because the daemon starts or is not connected",
)


def thing(properties: Mapping[str, Schema], *, all_required: bool = True) -> dict[str, Any]:
    """An object with these properties and no others."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**schema, "required": list(properties)} if all_required else schema


def array(items: Schema) -> dict[str, Any]:
    return {"type": "array", "items": dict(items)}


def page(items: Mapping[str, Schema]) -> dict[str, Any]:
    """A part of a list; ``fields`` may leave properties of its items out."""
    parts = properties(
        "total:count next:text?",
        total="items of the whole list",
        next="`cursor` of the next part; null: there is none",
    )
    return thing({**parts, "items": array(thing(items, all_required=False))})


def extended(schema: Schema, before: Mapping[str, Schema], after: Mapping[str, Schema]) -> dict[str, Any]:
    """A schema of an object with more properties, all of them required."""
    known = {**before, **schema["properties"], **after}
    return {**schema, "properties": known, "required": [*before, *schema["required"], *after]}


def whole(schema: Schema) -> dict[str, Any]:
    """A schema of an object, with what every answer has."""
    return extended(schema, OF_EVERY_ANSWER, {})


def explained(answer: type[Explained], *kinds: str, **more: Schema) -> dict[str, Any]:
    """Of an answer of ``nodepool explain``.

    :param kinds: other kinds of subjects that it is about, beside its own.
    :param more: further properties.
    """
    return extended(of_dataclass(answer), {"kind": {"enum": [answer.kind, *kinds]}}, more)


def of_dataclass(kind: type) -> dict[str, Any]:
    """The schema of a dataclass as `dataclasses.asdict` makes an object of it."""
    hints = typing.get_type_hints(kind)
    return thing({one.name: _of_hint(hints[one.name]) for one in fields(kind)})


_SIMPLE: Final[Mapping[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    types.NoneType: "null",
}


def _of_hint(hint: Any) -> dict[str, Any]:
    if hint is Any:
        return {}
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if is_dataclass(hint) and isinstance(hint, type):
        return of_dataclass(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_of_hint(one) for one in arguments]}
    if origin is Sequence:
        return array(_of_hint(arguments[0]))
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _of_hint(arguments[1])}
    raise TypeError(f"no schema of {hint}")
