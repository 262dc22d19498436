# SPDX-License-Identifier: Apache-2.0
"""Label and field selectors, as lists and watches take them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from simulators.kubernetes.errors import Refused
from simulators.kubernetes.kinds import ObjectKind

Json = dict[str, Any]
Test = Callable[[Json], bool]

#: Commas that separate requirements: not those in ``in (a,b)``.
_COMMA = re.compile(r",(?![^(]*\))")
_KEY = r"(?P<key>[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_EQUAL = re.compile(rf"^{_KEY}\s*(?P<sign>==|=|!=)\s*(?P<value>[-A-Za-z0-9_.]*)$")
_SET = re.compile(rf"^{_KEY}\s+(?P<sign>in|notin)\s*\((?P<values>[-A-Za-z0-9_., ]*)\)$")
_EXISTS = re.compile(rf"^(?P<not>!?)\s*{_KEY}$")
#: What a field selector may name beside name and namespace.
_FIELDS = {"pods": ("status.phase", "spec.nodeName", "spec.restartPolicy"), "secrets": ("type",)}


def label_selector(text: str) -> Test | None:
    """Whether an object's labels match; None = all do.

    :raises Refused: 400, this is no selector.
    """
    if not text.strip():
        return None
    tests = [_requirement(part.strip()) for part in _COMMA.split(text)]
    return lambda content: all(test(content["metadata"].get("labels") or {}) for test in tests)


def _requirement(text: str) -> Callable[[dict[str, str]], bool]:
    if found := _EQUAL.match(text):
        key, sign, value = found["key"], found["sign"], found["value"]
        if sign == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _SET.match(text):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["sign"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EXISTS.match(text):
        key, absent = found["key"], bool(found["not"])
        return lambda labels: (key in labels) != absent
    raise Refused(400, f"unable to parse requirement: {text!r}")


def field_selector(kind: ObjectKind, text: str) -> Test | None:
    """Whether an object's fields match; None = all do.

    :raises Refused: 400, a field that nothing can be selected by.
    """
    if not text.strip():
        return None
    known = ("metadata.name", "metadata.namespace", *_FIELDS.get(kind.plural, ()))
    tests = []
    for part in text.split(","):
        found = re.match(r"^\s*([^!=]+?)\s*(==|=|!=)\s*(.*?)\s*$", part)
        if found is None:
            raise Refused(400, f"invalid selector: {part!r}")
        field, sign, value = found.groups()
        if field not in known:
            raise Refused(400, f"field label not supported: {field}")
        tests.append(_field_test(field.split("."), value, sign == "!="))
    return lambda content: all(test(content) for test in tests)


def _field_test(path: list[str], value: str, unequal: bool) -> Test:
    def test(content: Json) -> bool:
        found: Any = content
        for part in path:
            found = found.get(part) or {}
        return ((found or "") == value) != unequal

    return test
