# SPDX-License-Identifier: Apache-2.0
"""Voluptuous schemas of declared keys (`nodepool.model.config_keys`), and pieces for schemas that drivers write.

Voluptuous is imported only by the functions that make a schema, because `nodepool list` needs none. After the schemas
come sections as they stand in a file, and values that are made of the request.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from nodepool.model import config_keys as keys
from nodepool.model.config_keys import FILLED_TEXT, MAX_INT, TEXT, ListOf, OneOf

if TYPE_CHECKING:
    from nodepool.model.request import NodeRequest


def section_schema(section: type) -> Any:
    """What voluptuous needs for a section: its keys, then the checks that the class attribute ``checks`` lists.

    A check takes the whole section and returns it, or raises ``voluptuous.Invalid``. The class attribute ``other_keys``
    is the type of keys of any other name, if they are allowed. The class attribute ``first_counts`` lists keys of which
    only one may be given; daemons of Nodepool 11 take the first one of the list that is there.
    """
    import voluptuous as v

    fields = fields_of(keys.keys_of(section))
    if hasattr(section, "other_keys"):
        fields[v.Extra] = value_schema(section.other_keys)
    checks = [*getattr(section, "checks", ())]
    if hasattr(section, "first_counts"):
        checks.append(functools.partial(_only_one, section.first_counts))
    return v.All(fields, *checks) if checks else fields


def _only_one(names: Sequence[str], data: dict[str, Any]) -> dict[str, Any]:
    """A check: only one of some keys is given."""
    import voluptuous as v

    given = [name for name in names if name in data]
    if len(given) > 1:
        raise v.Invalid(f"only one of {' and '.join(names)} can be given", path=[given[-1]])
    return data


def fields_of(declared: Iterable[keys.Key]) -> dict[Any, Any]:
    """Keys as a mapping for voluptuous; keys with a dot are mappings within it."""
    import voluptuous as v

    fields: dict[Any, Any] = {}
    for item in declared:
        *outer, last = item.path
        place = fields
        for part in outer:
            place = place.setdefault(part, {})
        place[v.Required(last) if item.required else last] = value_schema(item.kind)
    return fields


def value_schema(type: keys.ValueType) -> Any:
    """What voluptuous needs for a value."""
    import voluptuous as v

    made = _without_null(type)
    return v.Any(made, None) if type.null else made


def _without_null(type: keys.ValueType) -> Any:
    import voluptuous as v

    match type:
        case keys.Text(choices=(_, *_)):
            return v.In(list(type.choices))
        case keys.Text():
            return str if type.empty else nonempty()
        case keys.Whole():
            return integer(type.minimum, type.maximum)
        case keys.Number():
            return number(type.minimum, more=type.more)
        case keys.Flag():
            return bool
        case keys.MappingOf():
            return dict if type.values is None else {str: value_schema(type.values)}
        case keys.ListOf():
            return [value_schema(type.item)]
        case keys.TextOrNumber():
            return v.Any(str, int, float)
        case keys.OneOf():
            return v.Any(*map(value_schema, type.types))
        case keys.Sections():
            return [section_schema(type.section)]
    raise TypeError(f"no schema for {type!r}")


# Pieces of schemas.


def integer(minimum: int = -MAX_INT, maximum: int = MAX_INT) -> Any:
    """A whole number in a range. Unlike ``int`` in a schema it refuses ``true`` and ``false``."""
    import voluptuous as v

    return v.All(v.Any(_plain_int, msg="expected int"), v.Range(min=minimum, max=maximum))


def number(minimum: float = -MAX_INT, maximum: float = MAX_INT, *, more: bool = False) -> Any:
    """A number with or without a fraction; not infinite, not ``true``.

    :param more: the number must be more than the minimum.
    """
    import voluptuous as v

    allowed = v.Range(min=minimum, max=maximum, min_included=not more)
    return v.All(v.Any(_plain_int, float, msg="expected a number"), allowed)


def port() -> Any:
    """A TCP port."""
    return integer(1, 65535)


def nonempty() -> Any:
    """A text that is not empty."""
    import voluptuous as v

    return v.All(str, v.Length(min=1))


def _plain_int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("expected int")


# Checks of sections, for the class attribute ``checks``.

Section = dict[str, Any]
#: Path in a section, and what is wrong.
Problem = tuple[list[Any], str]


def check_of(problems: Callable[[Section], Iterable[Problem]], *, every: bool = True) -> Callable[[Section], Section]:
    """A check for the schema of a section: it returns the section, or raises ``voluptuous.Invalid``.

    :param every: for all problems; False = only for the first one.
    """

    def check(section: Section) -> Section:
        import voluptuous as v

        found = [v.Invalid(text, path=path) for path, text in problems(section)]
        if found:
            raise v.MultipleInvalid(found) if every else found[0]
        return section

    return check


# Sections of a file as they stand there, before they are checked against a schema.


def mappings(data: Any, key: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Position and content of the entries of a list that are mappings.

    :param data: has the list under ``key``, if it is a mapping and that is a list.
    """
    entries = data.get(key) if isinstance(data, dict) else None
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            yield index, entry


# Keys that take a value, or several values in order.

#: A text, or texts in order.
ONE_OR_MORE: Final = OneOf((TEXT, ListOf(FILLED_TEXT)))


def in_order(given: str | list[str]) -> list[str]:
    """What `ONE_OR_MORE` gives, as a list."""
    return [given] if isinstance(given, str) else list(given)


def as_texts(tags: dict[Any, Any]) -> dict[str, str]:
    """Tags as a cloud takes them: YAML takes ``release: 12`` for a number."""
    return {str(name): str(value) for name, value in tags.items()}


# Values of the configuration that are made of the request that causes a launch (L-15). Pure functions.

#: Request fields that dynamic values may use (reference/configuration 5), and where they come from.
_REQUEST_FIELDS: Final = {
    "id": "id",
    "labels": "node_types",
    "requestor": "requestor",
    "requestor_data": "requestor_data",
    "relative_priority": "relative_priority",
    "event_id": "event_id",
    "created_time": "created_time",
    "tenant_name": "tenant_name",
}


def dynamic_value(template: Any, request: NodeRequest | None) -> str | None:
    """Format a dynamic value from the request that causes a launch; None = it cannot be formatted."""
    values = {name: getattr(request, source, None) for name, source in _REQUEST_FIELDS.items()}
    try:
        return str(template).format(request=SimpleNamespace(**values))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None
