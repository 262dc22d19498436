# SPDX-License-Identifier: Apache-2.0
"""Reads a JSON object into a dataclass and makes one of it, for records that only we write (status, events)."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from nodepool import fast_json
from nodepool.model.record import InvalidRecord, is_finite

T = TypeVar("T")


class TypedRecord:
    """Base of dataclasses that are records of their own. `read` says which fields they may have."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON object to store."""
        data: dict[str, Any] = plain(self)
        return data

    @classmethod
    def of_record(cls, data: Mapping[str, Any]) -> Self:
        """Read a record. Keys that are missing have their defaults, and unknown ones are ignored.

        :raises InvalidRecord: a value has another type.
        """
        return read(cls, data)


def read(kind: type[T], data: Any) -> T:
    """Read a record. Keys that are missing have their defaults, and unknown ones are ignored.

    :param kind: a dataclass whose fields are texts, numbers, booleans, such dataclasses, ``X | None``, sequences and
        mappings of these.
    :raises InvalidRecord: a value has another type.
    """
    if not isinstance(data, Mapping):
        raise InvalidRecord(f"a {type(data).__name__}, not an object")
    hints = _hints(cast("Hashable", kind))
    return kind(**{name: _value(name, hints[name], value) for name, value in data.items() if name in hints})


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    """The types of the fields of a dataclass. To work them out takes longer than to read a record."""
    hints = get_type_hints(kind)
    return {entry.name: hints[entry.name] for entry in fields(kind)}


def _value(name: str, hint: Any, value: Any) -> Any:
    """A JSON value as the type that a field has."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if value is None:
            return None
        return _value(name, next(kind for kind in inner if kind is not NoneType), value)
    if origin is not None and issubclass(origin, Mapping):
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return {key: _value(name, inner[1], item) for key, item in value.items()}
    elif origin is not None:
        if isinstance(value, list):
            return tuple(_value(name, inner[0], item) for item in value)
    elif hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and is_finite(value):
            return value
    elif hint in (int, str, bool):
        if type(value) is hint:
            return value
    else:
        return read(hint, value)
    raise InvalidRecord(f"{name} is a {type(value).__name__}")


def as_json(record: Any) -> bytes:
    """A record, or an object of JSON, as text. Raises ValueError: JSON has no such value."""
    try:
        return fast_json.dumps(record)
    except ValueError:
        # Texts of errors have anything in them, also half of a character.
        return json.dumps(plain(record), sort_keys=True, allow_nan=False, separators=(",", ":")).encode()


def plain(record: Any) -> Any:
    """A record as an object of JSON; as `dataclasses.asdict`, which takes three times as long.

    Mappings and sequences are copied, other values are not.
    """
    kind = type(record)
    if kind in _PLAIN:
        return record
    names = _names.get(kind)
    if names is None and is_dataclass(record):
        names = _names[kind] = tuple(entry.name for entry in fields(record))
    if names is not None:
        return {name: plain(getattr(record, name)) for name in names}
    if isinstance(record, Mapping):
        return {key: plain(value) for key, value in record.items()}
    if isinstance(record, Sequence) and not isinstance(record, str):
        return [plain(value) for value in record]
    return record


_PLAIN: Final = frozenset({str, int, float, bool, NoneType})
#: Fields of each dataclass that was written.
_names: dict[type[Any], tuple[str, ...]] = {}
