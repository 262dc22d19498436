# SPDX-License-Identifier: Apache-2.0
"""JSON schemas (2020-12, as OpenAPI 3.1 has them) of what the API answers."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Final

from nodepool.plan.explained import Explained

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
