# SPDX-License-Identifier: Apache-2.0
"""What daemons of Nodepool 11 make of values that no schema allows (reference/configuration 1).

They never ran a schema, so there are files with empty keys, numbers in quotes, and so on, that work. Here such values
are changed to what they mean, and each change is a problem: a warning for a daemon, and an error for the validator
where that of Nodepool 11 refuses the value, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nodepool.config.marks import Document
from nodepool.config.problems import HIDDEN, Problems, Severity, show
from nodepool.config.schema import Checker, describe
from nodepool.driver.framework.key_schema import value_schema
from nodepool.model import config_keys as keys
from nodepool.model.config_keys import NOT_GIVEN

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
        return None if kind.null else Reading(NOT_GIVEN, _REFUSED)
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
    checker: Checker,
    value: Any,
    document: Document,
    path: Sequence[Any],
    problems: Problems,
    change: Callable[[], None],
) -> bool:
    """Check a value against a schema; if it does not conform, change it, and check it once more.

    :param change: changes the value in place, and tells of it.
    :return: does it conform now, but for unknown keys?
    """
    trial = Problems()
    if checker.check(value, document, path, trial):
        problems.found.extend(trial.found)
        return True
    change()
    return checker.check(value, document, path, problems)


class Tolerance:
    """Changes the values of a document.

    :param document: whose values are changed in place.
    :param problems: is notified of each change.
    """

    def __init__(self, document: Document, problems: Problems) -> None:
        self._document = document
        self._problems = problems

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
        self._problems.add(self._document.path, self._document.line_of(path), path, message, severity)
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
            self._problems.add(self._document.path, self._document.line_of([name]), [name], message, _REFUSED)
            del data[name]

    def _surplus(self, section: type, data: dict[str, Any], path: Sequence[Any]) -> None:
        """Take away keys beside which another one counts; see `section_schema`. A section may know further ones."""
        for name in getattr(section, "surplus_keys", lambda _: ())(data):
            self._not_given(data, [*path, name], "it has no effect beside the other keys; remove it")
        given = [name for name in getattr(section, "first_counts", ()) if name in data]
        for name in given[1:]:
            self._not_given(data, [*path, name], f"{given[0]} is there, too; remove one")

    def _not_given(self, data: dict[str, Any], path: list[Any], message: str) -> None:
        text = f"{message}, a daemon takes this one as not given"
        self._problems.add(self._document.path, self._document.line_of(path), path, text, _REFUSED)
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
        self._problems.add(self._document.path, self._document.line_of(path), path, message, reading.severity)
        if reading.value is NOT_GIVEN:
            del place[name]
        else:
            place[name] = reading.value
            if isinstance(reading.value, list):
                line = self._document.line_of(path) or 0
                self._document.lines[id(reading.value)] = [line] * len(reading.value)
                self._document.starts[id(reading.value)] = line
