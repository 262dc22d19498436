# SPDX-License-Identifier: Apache-2.0
"""Runs voluptuous schemas and turns everything that they object to into problems with file, line and key.

Voluptuous stops at the first bad item of a list; here every item is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import voluptuous as v

from nodepool.config.marks import Document
from nodepool.config.problems import Problems, Severity, did_you_mean, listing, show
from nodepool.model.config_keys import MAX_INT

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

    def check(self, value: Any, document: Document, path: Sequence[Any], problems: Problems) -> bool:
        """Check a value; True = nothing is wrong with it but unknown keys, if anything.

        :param path: where in the document the value stands.
        """
        try:
            self._schema(value)
        except v.MultipleInvalid as error:
            findings = error.errors
        else:
            return True
        return not [finding for finding in findings if self._report(finding, value, document, path, problems)]

    def _report(
        self, error: v.Invalid, value: Any, document: Document, path: Sequence[Any], problems: Problems
    ) -> bool:
        """Note one objection; False = it is only an unknown key."""
        inner = [part.schema if isinstance(part, v.Marker) else part for part in error.path]
        full = [*path, *inner]
        line = document.line_of(full)
        if error.error_message == "extra keys not allowed":
            known = _keys(self._raw, inner[:-1])
            allowed = f" (allowed: {listing(known)})" if known else ""
            message = f"unknown key{did_you_mean(inner[-1], known)}{allowed}"
            problems.add(document.path, line, full, message, Severity.UNKNOWN_KEY)
            return False
        if isinstance(error, v.RequiredFieldInvalid):
            problems.add(document.path, line, full, "required, but missing")
            return True
        got = _value_at(value, inner)
        if type(error) is v.Invalid or got is _NO_VALUE:
            problems.add(document.path, line, full, error.error_message)
            return True
        expected = next((text for text in map(describe, _schemas_at(self._raw, inner)) if text), "")
        said = f"expected {expected}" if expected else error.error_message
        problems.add(document.path, line, full, f"{said}, got {show(got, full)}{_hint(full, expected, got)}")
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


# -- what a schema wants at some place --


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
