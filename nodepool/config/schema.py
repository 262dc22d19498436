# SPDX-License-Identifier: Apache-2.0
"""Runs voluptuous schemas and turns everything that they object to into problems with file, line and key.

Voluptuous stops at the first bad item of a list; here every item is looked at. First the checks, then how what a schema
wants is described, then what is made of values that daemons of 11.0.0 accepted (`Tolerance`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import voluptuous as v

from nodepool.config.problems import HIDDEN, Document, Severity, did_you_mean, listing, show
from nodepool.driver.config import value_schema
from nodepool.model import config_keys as keys
from nodepool.model.config_keys import MAX_INT, NOT_GIVEN

_NOUNS: Final[dict[Any, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a mapping",
    list: "a list",
    None: "null",
}
_NO_VALUE: Final = object()
#: Last word of the keys whose values are seconds.
_DURATION_KEY: Final = re.compile(r"(?:^|[-_])(?:timeout|time|age|seconds)$")
_DURATION: Final = re.compile(r"(\d+) ?([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Checker:
    """A schema, ready to be used on many values.

    :param schema: a voluptuous schema, or what one is made of.
    :raises voluptuous.SchemaError: it is no schema.
    """

    def __init__(self, schema: Any) -> None:
        self._raw = schema
        self._schema = v.Schema(_complete(schema))

    def check(self, value: Any, document: Document, path: Sequence[Any]) -> bool:
        """Check a value; True = nothing is wrong with it but unknown keys, if anything.

        :param path: where in the document the value stands.
        """
        try:
            self._schema(value)
        except v.MultipleInvalid as error:
            findings = error.errors
        else:
            return True
        return not [finding for finding in findings if self._report(finding, value, document, path)]

    def _report(self, error: v.Invalid, value: Any, document: Document, path: Sequence[Any]) -> bool:
        """Note one objection; False = it is only an unknown key."""
        inner = [part.schema if isinstance(part, v.Marker) else part for part in error.path]
        full = [*path, *inner]
        if error.error_message == "extra keys not allowed":
            known = _keys(self._raw, inner[:-1])
            allowed = f" (allowed: {listing(known)})" if known else ""
            hint = _where(self._raw, inner) or f"{did_you_mean(inner[-1], known)}{allowed}"
            document.note(full, f"unknown key{hint}", Severity.UNKNOWN_KEY)
            return False
        got = _value_at(value, inner)
        if isinstance(error, v.RequiredFieldInvalid):
            message = "required, but missing"
        elif type(error) is v.Invalid or got is _NO_VALUE:
            message = error.error_message
        else:
            expected = next((text for text in map(describe, _schemas_at(self._raw, inner)) if text), "")
            wanted = f"expected {expected}" if expected else error.error_message
            message = f"{wanted}, got {show(got, full)}{_hint(full, expected, got)}"
        document.note(full, message)
        return True


class _EachItem:
    """A list of which every item is checked."""

    def __init__(self, item: Any, required: bool, extra: int) -> None:
        self._item = v.Schema(item, required=required, extra=extra)

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, list):
            raise v.SequenceTypeInvalid("expected a list")
        errors: list[v.Invalid] = []
        for index, item in enumerate(value):
            try:
                self._item(item)
            except v.MultipleInvalid as error:
                error.prepend([index])
                errors.extend(error.errors)
        if errors:
            raise v.MultipleInvalid(errors)
        return value


def _complete(schema: Any, required: bool = False, extra: int = v.PREVENT_EXTRA) -> Any:
    """The same schema, with lists that report every bad item."""
    if isinstance(schema, v.Schema):
        inner = _complete(schema.schema, schema.required, schema.extra)
        return v.Schema(inner, required=schema.required, extra=schema.extra)
    if isinstance(schema, dict):
        return {key: _complete(item, required, extra) for key, item in schema.items()}
    if isinstance(schema, list) and schema:
        items = [_complete(item, required, extra) for item in schema]
        return _EachItem(items[0] if len(items) == 1 else v.Any(*items), required, extra)
    if type(schema) in (v.All, v.Any) and schema.discriminant is None:
        parts = [_complete(part, schema.required, extra) for part in schema.validators]
        return type(schema)(*parts, msg=schema.msg, required=schema.required)
    return schema


# What a schema wants at some place, as text.


def _schemas_at(schema: Any, path: Sequence[Any]) -> Iterator[Any]:
    """The parts of a schema that speak about a place: several where a schema has alternatives."""
    if isinstance(schema, v.Schema):
        yield from _schemas_at(schema.schema, path)
    elif not path:
        yield schema
    elif isinstance(schema, (v.All, v.Any)):
        for part in schema.validators:
            yield from _schemas_at(part, path)
    elif isinstance(schema, list):
        for part in schema:
            yield from _schemas_at(part, path[1:])
    elif isinstance(schema, dict):
        for key, part in schema.items():
            name = key.schema if isinstance(key, v.Marker) else key
            if name == path[0] or name is v.Extra or (isinstance(name, type) and isinstance(path[0], name)):
                yield from _schemas_at(part, path[1:])


def _keys(schema: Any, path: Sequence[Any]) -> list[str]:
    """The keys that a mapping may have."""
    found: list[str] = []
    parts = list(_schemas_at(schema, path))
    while parts:
        part = parts.pop()
        if isinstance(part, v.Schema):
            parts.append(part.schema)
        elif isinstance(part, (v.All, v.Any)):
            parts.extend(part.validators)
        elif isinstance(part, dict):
            names = [key.schema if isinstance(key, v.Marker) else key for key in part]
            found.extend(name for name in names if isinstance(name, str))
    return sorted(set(found))


def _where(schema: Any, path: Sequence[Any]) -> str:
    """Where a key is known that is not known at a path, for a message: below it, or above it; else an empty text."""
    *place, key = path
    below = [(*place, name, 0) for name in _keys(schema, place)]
    below += [(*found, name, 0) for found in below for name in _keys(schema, found)]
    for found in below:
        if key in _keys(schema, found):
            lists = [str(name) for name in found[len(place) :: 2]]
            return f": it belongs to each of the {' of the '.join(reversed(lists))}"
    beside = next((part for depth, part in enumerate(place) if key in _keys(schema, place[:depth])), None)
    return "" if beside is None else f": it belongs beside {beside!r}"


def _value_at(value: Any, path: Sequence[Any]) -> Any:
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return _NO_VALUE
    return value


def describe(schema: Any) -> str:
    """What a schema accepts, for people: ``a whole number, 1 to 65535``; empty if there are no words for it."""
    if isinstance(schema, v.Schema):
        return describe(schema.schema)
    if isinstance(schema, v.In):
        return f"one of {', '.join(str(item) for item in schema.container)}"  # type: ignore[union-attr]
    if isinstance(schema, v.Range):
        return _describe_range(schema)
    if isinstance(schema, v.Match):
        return str(schema.msg)
    if isinstance(schema, v.Length):
        return "not empty" if schema.min == 1 and schema.max is None else ""
    if isinstance(schema, v.Any):
        words = [describe(part) for part in schema.validators]
        if all(words):
            return " or ".join(dict.fromkeys(words))
        return (schema.msg or "").removeprefix("expected ").replace("int", "a whole number")
    if isinstance(schema, v.All):
        return ", ".join(word for word in map(describe, schema.validators) if word)
    if isinstance(schema, dict):
        return "a mapping"
    if isinstance(schema, list):
        item = describe(schema[0]) if len(schema) == 1 else ""
        return f"a list of {item.removeprefix('a ')}s" if item in ("a text", "a mapping", "a number") else "a list"
    if isinstance(schema, type) or schema is None:
        return _NOUNS.get(schema, "")
    return repr(schema) if isinstance(schema, (str, int, float)) else ""


def _describe_range(schema: v.Range) -> str:
    low = None if schema.min is None or schema.min <= -MAX_INT else schema.min
    high = None if schema.max is None or schema.max >= MAX_INT else schema.max
    if low is not None and high is not None:
        return f"{low} to {high}"
    if low is not None:
        return f"{low} or more" if schema.min_included else f"more than {low}"
    if high is not None:
        return f"{high} or less" if schema.max_included else f"less than {high}"
    return ""


def _hint(path: Sequence[Any], expected: str, got: Any) -> str:
    """What to write instead: texts that YAML takes for something else, and durations with a unit, are common slips."""
    if expected.startswith(("a text", "one of")) and isinstance(got, (bool, int, float)):
        return "; put it in quotes"
    lasts = expected.startswith(("a number", "a whole number")) and _DURATION_KEY.search(str(path[-1]))
    if lasts and isinstance(got, str) and re.fullmatch(rf"(?:{_DURATION.pattern})+", got):
        seconds = sum(int(number) * _UNITS[unit] for number, unit in _DURATION.findall(got))
        return f"; write {seconds} (seconds)"
    return ""


# What daemons of Nodepool 11 make of values that no schema allows (reference/configuration 1).
#
# They never ran a schema, so there are files with empty keys, numbers in quotes, and so on, that work. Here such values
# are changed to what they mean, and each change is a problem: a warning for a daemon, and an error for the validator
# where that of Nodepool 11 refuses the value, too.

#: Severity of what the validator of Nodepool 11 refuses as well.
_REFUSED: Final = Severity.TOLERATED
#: Severity of what it does not look at.
_ACCEPTED: Final = Severity.WARNING


@dataclass(frozen=True)
class Reading:
    """How a value is read.

    :param value: what it means, or `NOT_GIVEN`.
    :param meaning: the same in words; empty = as the value is shown.
    """

    value: Any
    severity: Severity
    meaning: str = ""


def read_as(kind: keys.ValueType, value: Any) -> Reading | None:
    """What a value means that is not of its type; None = it is, or means nothing. For what is no list or mapping."""
    if value is None:
        # A list without entries must not open what it was to close.
        return None if kind.null or kind == keys.TENANTS else Reading(NOT_GIVEN, _REFUSED)
    match kind:
        case keys.Whole() if kind.instead is not None and not _means_number(kind, value):
            return Reading(kind.instead, _REFUSED)
        case keys.Whole() | keys.Number():
            return _number(kind, value)
        case keys.Flag() if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return Reading(bool(value), _REFUSED)
        case keys.Text() if isinstance(value, (int, float)) and not isinstance(value, bool):
            return Reading(str(value), _REFUSED)
        case keys.Text() if isinstance(value, bool) and kind.empty:
            return Reading(str(value).lower(), _REFUSED)
        case keys.ListOf(item=keys.Text()) if isinstance(value, str):
            return Reading([value], _REFUSED)
        case keys.Text() if value == "" and not kind.empty:
            return Reading(NOT_GIVEN, _ACCEPTED)
    return None


def _number(kind: keys.Whole | keys.Number, given: Any) -> Reading | None:
    """A number in quotes, one with a fraction where none is allowed, a truth value, and one that is too small."""
    severity = _REFUSED
    if isinstance(given, bool):
        number: float = int(given)
        severity = _ACCEPTED
    elif isinstance(given, (int, float)):
        number = given
    else:
        try:
            number = float(given) if isinstance(kind, keys.Number) or "." in given else int(given)
        except (TypeError, ValueError):
            return None
    if not math.isfinite(number):
        return None
    if isinstance(kind, keys.Whole):
        number = math.floor(number)
    if isinstance(kind, keys.Number) and kind.more and number <= kind.minimum:
        return Reading(NOT_GIVEN, _ACCEPTED)
    # Port 1 is not what port 0 means.
    if number < kind.minimum and kind != keys.PORT:
        number, severity = kind.minimum, _ACCEPTED if number == given else severity
    return None if number == given and type(number) is type(given) else Reading(number, severity)


def _means_number(kind: keys.Whole, given: Any) -> bool:
    reading = _number(kind, given)
    number = given if reading is None else reading.value
    return isinstance(number, int) and number <= kind.maximum


def _show(value: Any, path: Sequence[Any]) -> str:
    if isinstance(value, list):
        return "a list of that"
    text = show(value, path)
    return "it is written" if text == HIDDEN else text


def check_or_change(
    checker: Checker, value: Any, document: Document, path: Sequence[Any], change: Callable[[], None]
) -> bool:
    """Check a value against a schema; if it does not conform, change it, and check it once more.

    :param change: changes the value in place, and notes it.
    :return: does it conform now, but for unknown keys?
    """
    start = len(document.problems.found)
    if checker.check(value, document, path):
        return True
    del document.problems.found[start:]
    change()
    return checker.check(value, document, path)


class Tolerance:
    """Changes the values of a document.

    :param document: whose values are changed in place. Each change is noted there.
    """

    def __init__(self, document: Document) -> None:
        self._document = document

    def section(self, section: type, data: dict[str, Any], path: Sequence[Any]) -> None:
        """Change the values of one section.

        :param section: declares its keys.
        :param path: where in the document it stands.
        """
        declared = keys.keys_of(section)
        for item in declared:
            self._key(item, data, path)
        self._surplus(section, data, path)
        other = getattr(section, "other_keys", None)
        if other is not None:
            known = {item.path[0] for item in declared}
            for name in [name for name in data if name not in known]:
                self._value(other, data, name, [*path, name])

    def entries(self, section: type, entries: Any, path: Sequence[Any]) -> None:
        """Change the values of each section of a list."""
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict):
                self.section(section, entry, [*path, index])

    def drop(self, path: Sequence[Any], message: str, severity: Severity) -> None:
        """Take the entry of a list away that a path leads to, or leads through at last."""
        self._document.note(path, message, severity)
        last = max(index for index, part in enumerate(path) if isinstance(part, int))
        entries: Any = self._document.data
        for part in path[:last]:
            entries = entries[part]
        del entries[path[last]]
        del self._document.lines[id(entries)][path[last]]

    def empty_keys(self, names: Sequence[str]) -> None:
        """Take keys of the top level away that have no value.

        :param names: the keys that may have none.
        """
        data = self._document.data
        for name in [name for name in names if name in data and data[name] is None]:
            message = "there is nothing below it (null); remove it, a daemon takes it as not given"
            self._document.note([name], message, _REFUSED)
            del data[name]

    def _surplus(self, section: type, data: dict[str, Any], path: Sequence[Any]) -> None:
        """Take away keys beside which another one counts; see `section_schema`. A section may know further ones."""
        for name in getattr(section, "surplus_keys", lambda _: ())(data):
            self._not_given(data, [*path, name], "it has no effect beside the other keys; remove it")
        given = [name for name in getattr(section, "first_counts", ()) if name in data]
        for name in given[1:]:
            self._not_given(data, [*path, name], f"{given[0]} is there, too; remove one")

    def _not_given(self, data: dict[str, Any], path: list[Any], message: str) -> None:
        self._document.note(path, f"{message}, a daemon takes this one as not given", _REFUSED)
        del data[path[-1]]

    def _key(self, item: keys.Key, data: dict[str, Any], path: Sequence[Any]) -> None:
        place: Any = data
        for part in item.path[:-1]:
            place = place.get(part) if isinstance(place, dict) else None
        name = item.path[-1]
        if isinstance(place, dict) and name in place and not (item.required and place[name] in (None, "")):
            self._value(item.kind, place, name, [*path, *item.path])

    def _value(self, kind: keys.ValueType, place: Any, name: Any, path: list[Any]) -> None:
        """Change a value, and those in it.

        :param place: the mapping or list that it is in, under ``name``.
        """
        value = place[name]
        match kind:
            case keys.Sections() if value is not None:
                self.entries(kind.section, value, path)
                return
            case keys.MappingOf(values=keys.ValueType() as inner) if isinstance(value, dict):
                for key in list(value):
                    self._value(inner, value, key, [*path, key])
                return
            case keys.ListOf() if isinstance(value, list):
                for index, item in enumerate(value):
                    if item is None and kind.null_item:
                        self._put(kind.item, value, index, [*path, index], Reading("", _REFUSED, kind.null_item))
                    else:
                        self._value(kind.item, value, index, [*path, index])
                return
        reading = read_as(kind, value)
        if reading is not None and (reading.value is not NOT_GIVEN or isinstance(place, dict)):
            self._put(kind, place, name, path, reading)

    def _put(self, kind: keys.ValueType, place: Any, name: Any, path: list[Any], reading: Reading) -> None:
        """Put what a value means in its place, and tell of it."""
        value = place[name]
        meaning = "not given" if reading.value is NOT_GIVEN else reading.meaning or _show(reading.value, path)
        expected = describe(value_schema(kind)) or "something else"
        hint = "put it in quotes" if isinstance(kind, keys.Text) and value not in (None, "") else "correct it"
        message = f"expected {expected}, got {show(value, path)}; {hint}, a daemon takes it as {meaning}"
        self._document.note(path, message, reading.severity)
        if reading.value is NOT_GIVEN:
            del place[name]
        else:
            place[name] = reading.value
            if isinstance(reading.value, list):
                line = self._document.line_of(path) or 0
                self._document.lines[id(reading.value)] = [line] * len(reading.value)
                self._document.starts[id(reading.value)] = line
