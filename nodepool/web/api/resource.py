# SPDX-License-Identifier: Apache-2.0
"""A path of the API, what it answers, and how OpenAPI describes it (`ApiResource`); then JSON schemas of answers."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from nodepool.listing.paging import BadCursor, Order, part_of
from nodepool.listing.table import Table, UnknownColumn, selected
from nodepool.model.config_keys import did_you_mean
from nodepool.plan.explained import Explained
from nodepool.web.answers import CURSOR, FIELDS, OF_LISTS, SORT, ApiProblem, Parameter, Query

if TYPE_CHECKING:
    from nodepool.web.snapshot import WebSnapshot

#: Part of the path that names the record.
NAME: Final = "name"


@dataclass(frozen=True)
class ApiResource:
    """One path.

    :param path: below ``/api/v1``; ``{name}`` is the id or name of a record, and may have ``/`` in it at the end.
    :param answer: makes the JSON object from the snapshot and the query, beside `MOMENT`. Raises ApiProblem.
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
        return f"{{{NAME}" in self.path


@dataclass(frozen=True)
class Records:
    """Records of a list, of which a part is shown.

    :param orders: key of a field -> what records are sorted by.
    :param table: makes rows of some of them; called for those that are shown.
    """

    records: Sequence[Any]
    orders: Mapping[str, Callable[[Any], Any]]
    identity: Callable[[Any], str]
    default: str
    table: Callable[[Sequence[Any]], Table]


#: The snapshot and the query -> what is wanted.
Look = Callable[["WebSnapshot", Query], Records]


def list_resource(
    path: str, summary: str, look: Look, properties: Mapping[str, Any], parameters: Sequence[Parameter] = ()
) -> ApiResource:
    """A list that can be sorted, shown in parts, and with some fields.

    :param properties: of an item, by key.
    """

    def answer(snapshot: WebSnapshot, query: Query) -> Mapping[str, Any]:
        return _list(look(snapshot, query), query)

    return ApiResource(path, summary, answer, page(properties), (*parameters, *OF_LISTS))


def of_table(table: Table, identity: Sequence[str], default: str | None = None) -> Records:
    """The rows of a table that is small enough to be made as a whole.

    :param identity: keys of the columns that tell rows apart.
    :param default: what it is sorted by if nobody asks; None = as ``identity``.
    """
    numbers = {column.key: number for number, column in enumerate(table.columns)}
    parts = [numbers[key] for key in identity]
    return Records(
        table.rows,
        {key: itemgetter(number) for key, number in numbers.items()},
        lambda row: "\0".join(str(row[number]) for number in parts),
        default or identity[0],
        lambda rows: replace(table, rows=rows),
    )


def objects_of(table: Table) -> list[dict[str, Any]]:
    """Each row as an object."""
    keys = [column.key for column in table.columns]
    return [dict(zip(keys, row, strict=True)) for row in table.rows]


def _list(found: Records, query: Query) -> dict[str, Any]:
    asked = query.given.get(SORT.name, found.default)
    key = asked.removeprefix("-")
    if key not in found.orders:
        there_are = f"there are: {', '.join(found.orders)}"
        raise ApiProblem(400, f"This list cannot be sorted by {key!r}{did_you_mean(key, found.orders)}; {there_are}.")
    order = Order(found.orders[key], found.identity, asked.startswith("-"))
    try:
        part = part_of(found.records, order, query.limit, query.given.get(CURSOR.name))
    except BadCursor as error:
        raise ApiProblem(400, f"The parameter {CURSOR.name!r} cannot be understood: {error}.") from None
    table = found.table(part.records)
    if query.fields:
        try:
            table = selected(table, query.fields)
        except UnknownColumn as error:
            raise ApiProblem(400, f"The parameter {FIELDS.name!r} cannot be understood: {error}.") from None
    return {"total": len(found.records), "next": part.cursor, "items": objects_of(table)}


# JSON schemas (2020-12, as OpenAPI 3.1 has them) of what the API answers.

Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string"}
OPTIONAL_TEXT: Final[Schema] = {"type": ["string", "null"]}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
COUNT: Final[Schema] = {"type": "integer"}
OPTIONAL_COUNT: Final[Schema] = {"type": ["integer", "null"]}
NUMBER: Final[Schema] = {"type": "number"}
OPTIONAL_NUMBER: Final[Schema] = {"type": ["number", "null"]}
FLAG: Final[Schema] = {"type": "boolean"}
#: What other programs stored.
ANYTHING: Final[Schema] = {}
MOMENT: Final[Schema] = {"type": "number", "description": "seconds since the epoch"}
OPTIONAL_MOMENT: Final[Schema] = {"type": ["number", "null"], "description": "seconds since the epoch"}
OPTIONAL_SECONDS: Final[Schema] = {"type": ["number", "null"], "description": "seconds, as of `now`"}
OPTIONAL_TEXTS: Final[Schema] = {"type": ["array", "null"], "items": TEXT}

#: What every answer has beside its content.
OF_EVERY_ANSWER: Final[Mapping[str, Schema]] = {
    "now": {
        "type": "number",
        "description": "when the answer was true, in seconds since the epoch; ages are as of then",
    },
    "complete": {
        "type": "boolean",
        "description": "false: not all that ZooKeeper has is known, because the daemon starts or is not connected",
    },
}


def thing(properties: Mapping[str, Schema], *, all_required: bool = True) -> dict[str, Any]:
    """An object with these properties and no others."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return {**schema, "required": list(properties)} if all_required else schema


def array(items: Schema) -> dict[str, Any]:
    return {"type": "array", "items": dict(items)}


def page(properties: Mapping[str, Schema]) -> dict[str, Any]:
    """A part of a list; ``fields`` may leave properties of its items out."""
    return thing(
        {
            "total": {"type": "integer", "description": "items of the whole list"},
            "next": {"type": ["string", "null"], "description": "`cursor` of the next part; null: there is none"},
            "items": array(thing(properties, all_required=False)),
        }
    )


def whole(schema: Schema) -> dict[str, Any]:
    """A schema of an object, with what every answer has."""
    return {
        **schema,
        "properties": {**OF_EVERY_ANSWER, **schema["properties"]},
        "required": [*OF_EVERY_ANSWER, *schema["required"]],
    }


def of_dataclass(kind: type) -> dict[str, Any]:
    """The schema of a dataclass as `dataclasses.asdict` makes an object of it."""
    hints = typing.get_type_hints(kind)
    return thing(
        {
            one.name: _of_hint(hints[one.name])
            for one in fields(kind)
            if typing.get_origin(hints[one.name]) is not ClassVar
        }
    )


def explained(answer: type[Explained], *kinds: str) -> dict[str, Any]:
    """Of an answer of ``nodepool explain``.

    :param kinds: other kinds of subjects that it is about, beside its own.
    """
    schema = of_dataclass(answer)
    properties = {"kind": {"enum": [answer.kind, *kinds]}, **schema["properties"]}
    return {**schema, "properties": properties, "required": list(properties)}


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
